"""Shared by all tests: which kernels this machine has, payloads in memory, and model files."""

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest
from coverage import Coverage

from tests.gpu.support.devices import why_no_device
from tests.support.native_library import use_library_under_test
from tests.support.payloads import decoded, encoded
from tests.support.signals import not_ignored_by_children
from unweight.containers.safetensors import header_bytes
from unweight_codecs.kernels import ENVIRONMENT_VARIABLE, kernel_status
from unweight_codecs.kernels.native import NativeKernels, library
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.tensor_spec import TensorSpec

Tensor = tuple[str, str, tuple[int, ...], bytes]  # name, dtype, shape, bytes

use_library_under_test()
KERNELS = [status.name for status in kernel_status() if status.available]
NATIVE: list[object] = [name for name in KERNELS if name != ReferenceKernels.name]
FUSED = "avx512"
# The tests that have one of these run on kernels of their own choice, whatever runs by default.
CHOOSING = {"use_kernel", "each_kernel", "native_kernel"}
NO_NATIVE = [pytest.param("", marks=pytest.mark.skip(reason="the C library was not built"))]
# Where coverage is measured, Python code takes half as long again. Of a test with thousands of
# cases, so many, evenly spread, run nearly every line and branch that all of them do.
MEASURED_CASES = 4
MEASURED = pytest.StashKey[bool]()


def pytest_report_header() -> str:
    """Say what is not collected, as nothing will be reported as skipped."""
    reason = why_no_device()
    return f"CUDA device: its tests are not collected: {reason}" if reason else "CUDA device: yes"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        if isinstance(item, pytest.Function) and CHOOSING & set(item.fixturenames):
            item.add_marker("not_on_reference")
    for group in cases.values():
        for item in group[:: -(-len(group) // MEASURED_CASES)]:
            item.stash[MEASURED] = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    measuring = Coverage.current()
    if measuring is None or MEASURED in item.stash:
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


@pytest.fixture(scope="session", autouse=True)
def signals_of_children() -> Iterator[None]:
    """Start every process with the default actions of signals, under nohup too.

    A fixture, because only processes that run tests have one: the one of pytest-xdist that hands
    tests out starts those that run them, which should ignore what it ignores.
    """
    with not_ignored_by_children():
        yield


@pytest.fixture(scope="module")
def without_fsync() -> Iterator[None]:
    """Do not wait for the disk, for tests that write hundreds of files.

    On a busy disk these would be minutes. What happens when the power fails is the subject of the
    tests of ``unweight.output``, which do not use this.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def kernels() -> list[str]:
    """Return the names of the kernels of this machine."""
    return KERNELS


@pytest.fixture
def use_kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes the library use the kernel of a name."""

    def use(name: str) -> None:
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, name)

    return use


@pytest.fixture(params=KERNELS)
def each_kernel(request: pytest.FixtureRequest, use_kernel: Callable[[str], None]) -> str:
    """Run the test once on every kernel of this machine; returns the kernel's name."""
    name = str(request.param)
    use_kernel(name)
    return name


@pytest.fixture(params=NATIVE or NO_NATIVE)
def native_kernel(request: pytest.FixtureRequest) -> NativeKernels:
    """Return the C kernels of each instruction set of this machine."""
    path = library.find_library()
    if path is None:
        pytest.skip("the C library was not built")
    return NativeKernels(library.load_library(path), str(request.param))


@pytest.fixture
def fused_kernel() -> NativeKernels:
    """Return the kernels that decode 16-bit floats in one pass, of which there is one set."""
    path = library.find_library()
    if path is None or FUSED not in NATIVE:
        pytest.skip(f"this machine does not run the {FUSED} kernels")
    return NativeKernels(library.load_library(path), FUSED)


@pytest.fixture(scope="session")
def encode_payload() -> Callable[[Pipeline, TensorSpec, Bytes], bytes]:
    """Return a function that codes a tensor in memory, even when it does not shrink."""
    return encoded


@pytest.fixture(scope="session")
def decode_payload() -> Callable[[Pipeline, TensorSpec, bytes], bytes]:
    """Return a function that decodes a payload as an archive reader does."""
    return decoded


@pytest.fixture(scope="session")
def write_model() -> Callable[..., Path]:
    """Return a function that writes a safetensors file of (name, dtype, shape, bytes)."""

    def write(
        path: Path, tensors: Sequence[Tensor], metadata: dict[str, str] | None = None
    ) -> Path:
        entries = [(name, dtype, shape, len(data)) for name, dtype, shape, data in tensors]
        body = b"".join(data for _, _, _, data in tensors)
        path.write_bytes(header_bytes(entries, metadata) + body)
        return path

    return write
