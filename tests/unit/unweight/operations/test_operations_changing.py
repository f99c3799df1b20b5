"""Things that change while an operation runs, and things that must not change its result."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import Tensor, gaussian, noise, small_model, write_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError, ResourceError, UnweightError

QUIET = NoProgress()


class Meddler(NoProgress):
    """Does something once, when so many bytes are done."""

    def __init__(self, after: int, deed: Callable[[], None]) -> None:
        self._left = after
        self._deed: Callable[[], None] | None = deed

    def advance(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left <= 0 and self._deed:
            deed, self._deed = self._deed, None
            deed()


def one_tensor(path: Path, tensor: Tensor) -> Path:
    return write_model(path, {"weight": tensor})


def overwrite(path: Path, at: int, data: bytes) -> Callable[[], None]:
    def deed() -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)

    return deed


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


CODED, STORED = gaussian("BF16", (256, 256), 1), noise((3 << 20,), 2)


@pytest.mark.parametrize("tensor", [CODED, STORED], ids=["coded", "stored"])
@pytest.mark.parametrize(
    "data", [bytes(64), b"\x81\x3c" * 32, b"\x7f" * 64], ids=["zeros", "usual", "infinities"]
)
def test_input_changed_between_the_two_passes(tensor: Tensor, data: bytes, tmp_path: Path) -> None:
    """The digest is of the first pass and the payload of the second: the file would be lost."""
    path = one_tensor(tmp_path / "model.safetensors", tensor)
    size = path.stat().st_size
    meddler = Meddler(size // 2 - 64, overwrite(path, size - 1000, data))
    with pytest.raises(IntegrityError, match=r"model\.safetensors: tensor 'weight' changed while"):
        compress(path, None, CompressOptions(threads=1), meddler)
    assert list(tmp_path.iterdir()) == [path]


class AtBeginning(NoProgress):
    """Does something when all headers are read, before any tensor is."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed

    def begin(self, title: str, total: int) -> None:
        self._deed()


@pytest.mark.parametrize("change", ["name", "shape", "longer", "shorter", "empty"])
def test_input_changed_after_its_header_was_read(change: str, tmp_path: Path) -> None:
    path = one_tensor(tmp_path / "model.safetensors", CODED)
    data = path.read_bytes()
    changed = {
        "name": data.replace(b"weight", b"Weight"),
        "shape": data.replace(b"[256, 256]", b"[128, 512]"),
        "longer": data + b"\0",
        "shorter": data[:-1],
        "empty": b"",
    }[change]
    assert changed != data
    meddler = AtBeginning(lambda: path.write_bytes(changed))
    with pytest.raises(IntegrityError, match=r"model\.safetensors changed while it was read \("):
        compress(path, None, CompressOptions(), meddler)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("after", [1, len(CODED.data) // 2, len(CODED.data) // 2 + 100])
def test_input_cut_while_it_is_compressed(after: int, tmp_path: Path) -> None:
    tensors = {str(number): CODED for number in range(8)}
    path = write_model(tmp_path / "model.safetensors", tensors)
    with pytest.raises((FormatError, IntegrityError), match=r"model\.safetensors") as caught:
        compress(path, None, CompressOptions(threads=1), Meddler(after, lambda: halve(path)))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("work", "cut"), [("decompress", "coded"), ("verify", "coded"), ("verify", "original")]
)
def test_input_cut_while_it_is_read(work: str, cut: str, tmp_path: Path) -> None:
    tensors = {str(number): CODED for number in range(8)}
    original = write_model(tmp_path / "original.safetensors", tensors)
    coded = tmp_path / "coded.safetensors"
    compress(original, coded, CompressOptions(), QUIET)
    meddler = Meddler(1, lambda: halve(tmp_path / f"{cut}.safetensors"))

    def run() -> None:
        if work == "verify":
            verify(coded, original, threads=1, progress=meddler)
        else:
            decompress(coded, tmp_path / "out", threads=1, force=False, progress=meddler)

    with pytest.raises((FormatError, IntegrityError), match=cut):
        run()
    assert set(tmp_path.iterdir()) == {original, coded}


def test_a_replaced_input_is_the_old_one_to_the_end(tmp_path: Path) -> None:
    path = one_tensor(tmp_path / "model.safetensors", CODED)
    original = path.read_bytes()
    other = one_tensor(tmp_path / "other.safetensors", gaussian("BF16", (256, 256), 9))
    coded = tmp_path / "coded.safetensors"
    compress(path, coded, CompressOptions(), Meddler(1, lambda: os.replace(other, path)))
    assert path.read_bytes() != original
    decompress(coded, path, threads=0, force=True, progress=QUIET)
    assert path.read_bytes() == original


def test_a_carried_file_that_vanishes(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "model" / "model.safetensors").parent
    (folder / "config.json").write_text("{}")
    (folder / "link.json").symlink_to("config.json")

    class Vanishing(NoProgress):
        def begin(self, title: str, total: int) -> None:
            (folder / "config.json").unlink()

    with pytest.raises((UnweightError, OSError), match=r"No such file"):
        compress(folder, None, CompressOptions(), Vanishing())
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_disk_that_fills_up(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_model(tmp_path / "model" / "model.safetensors").parent
    source = folder if kind == "directory" else folder / "model.safetensors"
    target = tmp_path / "out"

    def full(file: object, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("unweight.archive.writer.write_all", full)
    with pytest.raises(ResourceError, match=r"no space: up to \d+ bytes needed, \d+ free"):
        compress(source, target, CompressOptions(), QUIET)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError])
def test_a_directory_that_cannot_be_exchanged_stays(
    failing: int, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two renames nothing has the name; an interrupt there must not lose both."""
    folder = small_model(tmp_path / "model" / "model.safetensors").parent
    (folder / "note").write_text("the new one")
    target = tmp_path / "out"
    compress(folder, target, CompressOptions(), QUIET)
    (target / "note").write_text("the old one")
    real, calls = os.replace, 0

    def replace(source: str | Path, destination: str | Path) -> None:
        nonlocal calls
        if Path(destination).name in {"old", "out"}:
            calls += 1
            if calls == failing:
                raise error
        real(source, destination)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises((KeyboardInterrupt, ResourceError)):
        compress(folder, target, CompressOptions(force=True), QUIET)
    assert (target / "note").read_text() == "the old one"
    assert set(tmp_path.iterdir()) == {folder, target}


def model_of_many_kinds(path: Path) -> Path:
    zeros = Tensor("F32", (5000,), bytes(20_000))
    integers = Tensor("I64", (4000,), (np.arange(4000) ** 2).astype("<i8").tobytes())
    tensors = {
        "wide": gaussian("BF16", (70, 9001), 1, octaves=6),
        "full": gaussian("F32", (123, 1001), 2),
        "zeros": zeros,
        "integers": integers,
        "noise": noise((50_000,), 3),
        "scalar": Tensor("F32", (), bytes(4)),
    }
    return write_model(path, tensors)


@pytest.mark.parametrize("preset", ["fast", "default", "max"])
def test_the_result_does_not_depend_on_the_threads(preset: str, tmp_path: Path) -> None:
    path = model_of_many_kinds(tmp_path / "model.safetensors")
    results = set()
    for threads in (1, 2, 5, 2):
        coded = tmp_path / "coded"
        options = CompressOptions(
            preset, threads=threads, stages=("pack:chunk_log2=13",), force=True
        )
        compress(path, coded, options, QUIET)
        results.add(coded.read_bytes())
        restored = tmp_path / "restored"
        decompress(coded, restored, threads=threads, force=True, progress=QUIET)
        assert restored.read_bytes() == path.read_bytes()
    assert len(results) == 1


def test_the_result_does_not_depend_on_names_and_times(tmp_path: Path) -> None:
    one = small_model(tmp_path / "one.safetensors")
    two = small_model(tmp_path / "other" / "two.safetensors")
    os.utime(two, (1, 1))
    results = [tmp_path / "1", tmp_path / "2"]
    for source, target in zip((one, two), results, strict=True):
        compress(source, target, CompressOptions(), QUIET)
    assert results[0].read_bytes() == results[1].read_bytes()
