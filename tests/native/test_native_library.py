"""The library and its binding: what they have to agree on, and what happens where they do not."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from unweight_codecs import kernels
from unweight_codecs.errors import IntegrityError, ResourceError, UnweightError
from unweight_codecs.kernels import ENVIRONMENT_VARIABLE, _choose, _library, kernel_status
from unweight_codecs.kernels.native import NativeKernels, binding, library
from unweight_codecs.kernels.native.structures import ArrayPointer
from unweight_codecs.kernels.operands import ALPHABET, SEGMENT, SLOTS, FloatSplit
from unweight_codecs.kernels.reference import ReferenceKernels

SOURCES = Path(kernels.__file__).with_name("src")
BF16 = FloatSplit(2, 8, 7, 1, 100, 15)


def declarations() -> dict[str, tuple[str, list[str]]]:
    """Return result and argument types of every exported function, as the header writes them."""
    text = re.sub(r"\s+", " ", (SOURCES / "exports.h").read_text("utf-8"))
    found = {}
    for result, name, arguments in re.findall(r"UW_EXPORT ([^;]*?)(uw_\w+)\(([^;]*)\);", text):
        found[name] = (result.strip(), [each.strip() for each in arguments.split(",")])
    return found


def kind_of(declared: str) -> object:
    """Return the type by which the binding passes what the header declares."""
    if declared.startswith("const uw_kernel"):
        return ctypes.c_void_p
    if declared.startswith("const char"):
        return ctypes.c_char_p
    if "*" in declared or "[" in declared:
        return ArrayPointer
    return getattr(ctypes, "c_" + declared.split()[0].removesuffix("_t"))


def test_the_binding_declares_what_the_header_declares() -> None:
    declared = declarations()
    assert declared.keys() == library.SIGNATURES.keys()
    for name, (result, arguments) in library.SIGNATURES.items():
        said, types = declared[name]
        assert result == (None if said == "void" else kind_of(said)), name
        assert arguments == [kind_of(each) for each in types], name


def test_the_binding_knows_the_statuses_of_the_header() -> None:
    text = (SOURCES / "unweight.h").read_text("utf-8")
    found = dict(re.findall(r"^    UW_(\w+) = (-\d+)", text, re.M))
    assert len(found) == 7
    assert {name: int(value) for name, value in found.items()} == {
        name: vars(binding)[name] for name in found
    }


@pytest.fixture
def path() -> Path:
    found = library.find_library()
    if found is None:
        pytest.skip("the C library was not built")
    return found


@pytest.mark.parametrize("fact", library.FACTS)
def test_a_library_that_differs_in_a_fact_is_refused(
    path: Path, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(library.FACTS, fact, library.FACTS[fact] + 1)
    with pytest.raises(library.StaleLibraryError, match=f"{re.escape(fact)} is "):
        library.load_library(path)


def test_a_library_that_states_more_facts_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(library.FACTS, list(library.FACTS)[-1])
    with pytest.raises(library.StaleLibraryError, match="states 22 facts, not 21"):
        library.load_library(path)


STUBS = {
    "every function, another ABI": "unsigned uw_abi(unsigned *f, unsigned n) {f[0] = n; return n;}",
    "no ABI": "",
}


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
@pytest.mark.parametrize("abi", STUBS.values(), ids=STUBS)
def test_a_stale_library_is_not_used(
    abi: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with the same symbols would take the arguments of today for those of its own day."""
    source, stale = tmp_path / "stale.c", tmp_path / "_native.so"
    functions = (f"void {name}(void) {{}}" for name in library.SIGNATURES if name != "uw_abi")
    source.write_text("\n".join([*functions, abi]))
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", stale], check=True)  # noqa: S607
    monkeypatch.setattr(library, "find_library", lambda: stale)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    for cache in (_library, _choose):
        cache.cache_clear()
    try:
        rows = {row.name: row for row in kernel_status()}
        assert "is of another version" in rows["portable"].reason
        assert not any(rows[name].available for name in library.INSTRUCTION_SETS)
        assert kernels.active_kernel() == "reference"
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, "portable")
        with pytest.raises(ResourceError, match="another version"):
            kernels.active_kernel()
    finally:
        for cache in (_library, _choose):
            cache.cache_clear()


def test_the_reference_does_without_a_library_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise AssertionError("looked for")

    monkeypatch.setattr(library, "find_library", broken)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "reference")
    for cache in (_library, _choose):
        cache.cache_clear()
    try:
        assert kernels.active_kernel() == "reference"
    finally:
        for cache in (_library, _choose):
            cache.cache_clear()


def test_kernels_of_one_process_are_what_their_names_say(fused_kernel: NativeKernels) -> None:
    """Only one of these sets splits 16-bit floats in one pass, whichever was made last."""
    path = library.find_library()
    assert path
    loaded = library.load_library(path)
    portable = NativeKernels(loaded, "portable")
    words = np.arange(256, dtype=np.uint8)
    for _ in range(2):
        assert fused_kernel.split16(words, 128, 128, BF16) is not None
        assert portable.split16(words, 128, 128, BF16) is None
    again = NativeKernels(loaded, fused_kernel.name)
    assert portable.split16(words, 128, 128, BF16) is None
    assert again.split16(words, 128, 128, BF16) is not None


def test_an_unknown_kernel_is_refused(path: Path) -> None:
    with pytest.raises(UnweightError, match="does not run the sse9 kernels"):
        NativeKernels(library.load_library(path), "sse9")


@pytest.mark.skipif(not shutil.which("nm"), reason="there is no nm to list symbols with")
def test_the_library_allocates_nothing(path: Path) -> None:
    """Memory that cannot be had would have to be told apart from damage in every function."""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", path],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    symbols = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    assert symbols & {"memcpy", "__asan_memcpy"}
    assert not symbols & {"malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign"}


def test_short_scratch_memory_is_no_damage(
    native_kernel: NativeKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = ReferenceKernels()
    frequencies = np.zeros((2, ALPHABET), np.uint16)
    frequencies[:, 0] = SLOTS
    segments = np.zeros(1, SEGMENT)
    segments["count"] = 128
    symbols = np.zeros(128, np.uint8)
    coded = reference.rans_encode(symbols, segments, frequencies, None)
    native_kernel.rans_decode(coded, segments, frequencies, None, symbols)
    short = np.zeros(2 * library.DECODER_ROOM - 1, np.uint32)
    for module in ("coding", "levels", "planes"):
        monkeypatch.setattr(f"unweight_codecs.kernels.native.{module}.room_for", lambda *_: short)
    with pytest.raises(MemoryError, match="scratch memory"):
        native_kernel.rans_decode(coded, segments, frequencies, None, symbols)
    short = np.zeros(2 * library.ENCODER_ROOM - 1, np.uint32)
    with pytest.raises(MemoryError, match="scratch memory"):
        native_kernel.rans_encode(symbols, segments, frequencies, None)


@pytest.mark.parametrize("status", range(-9, 0))
def test_only_what_says_so_is_damage(status: int) -> None:
    damage = {binding.DAMAGED, binding.CUT_SHORT, binding.WRONG_SUM}
    with pytest.raises((UnweightError, MemoryError)) as caught:
        binding.checked(status)
    assert (caught.type is IntegrityError) == (status in damage)
    assert (caught.type is MemoryError) == (status == binding.NO_ROOM)
