"""Files made to deceive: every digest is right, but what they say is not.

All must be refused before anything of a claimed size is allocated, so each runs with little memory.
"""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.edits import CODED, Edit
from tests.support.gguf_files import small_gguf
from tests.support.gguf_surgery import GgufArchive
from tests.support.memory import at_most_more
from tests.support.models import SMALL_MODEL_STAGES, small_model
from tests.support.refusals import REFUSALS, Refusal
from tests.support.surgery import Archive, Head, framed
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.inspect.header import inspect_header, inspect_stages
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError

MEMORY = 64 << 20
QUIET = NoProgress()
MODELS: dict[str, Callable[[Path], Path]] = {"safetensors": small_model, "gguf": small_gguf}
SURGERY: dict[str, type[Archive] | type[GgufArchive]] = {
    "safetensors": Archive,
    "gguf": GgufArchive,
}

refusals = pytest.mark.parametrize(
    ("container", "refusal", "error"),
    [
        pytest.param(container, refusal, error, id=f"{container}: {name}")
        for container, name, refusal, error in REFUSALS
    ],
)
containers = pytest.mark.parametrize("container", MODELS)


@pytest.fixture(scope="module")
def honest_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a compressed file of each container; the original is beside it."""
    files = {}
    for container, write in MODELS.items():
        folder = tmp_path_factory.mktemp(container)
        files[container] = folder / f"honest.{container}"
        options = CompressOptions(stages=SMALL_MODEL_STAGES)
        compress(write(folder / f"model.{container}"), files[container], options, QUIET)
    return files


@pytest.fixture(scope="module")
def honest(honest_files: dict[str, Path]) -> Path:
    return honest_files["safetensors"]


@pytest.fixture
def forged(honest_files: dict[str, Path], tmp_path: Path) -> Callable[[str, Edit], Path]:
    """Return a function that writes an edited copy of the honest file of a container."""

    def forge(container: str, edit: Edit) -> Path:
        archive = SURGERY[container].read(honest_files[container])
        edit(archive)
        return archive.write(tmp_path / f"forged.{container}", {"format": "pt"})

    return forge


@refusals
def test_refused(
    container: str,
    refusal: Refusal,
    error: type[UnweightError],
    forged: Callable[[str, Edit], Path],
) -> None:
    edit, words = refusal
    path = forged(container, edit)
    with at_most_more(MEMORY):
        with pytest.raises(error, match=words) as caught:
            verify(path, None, threads=1, progress=QUIET)
        with pytest.raises(error, match=words):
            decompress(path, path.with_name("out"), threads=1, force=False, progress=QUIET)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(path.parent.iterdir()) == [path]


@refusals
def test_inspecting_does_not_crash_or_allocate_much(
    container: str,
    refusal: Refusal,
    error: type[UnweightError],
    forged: Callable[[str, Edit], Path],
) -> None:
    """It may show a file whose damage lies where it does not look."""
    path = forged(container, refusal[0])
    for look in (lambda: inspect_header(path), lambda: inspect_stages(path, CODED)):
        with at_most_more(MEMORY), suppress(UnweightError):
            look()


@containers
def test_the_surgery_leaves_an_unchanged_file_alone(
    container: str, honest_files: dict[str, Path], tmp_path: Path
) -> None:
    honest = honest_files[container]
    archive = SURGERY[container].read(honest)
    for name in archive.manifest["tensors"]:
        found, chunks = Head.read(archive.payloads[name])
        assert found.to_bytes() + chunks == archive.payloads[name]
    copy = archive.write(tmp_path / f"copy.{container}")
    original = honest.with_name(f"model.{container}")
    with at_most_more(MEMORY):
        verify(copy, original, threads=1, progress=QUIET)


def test_a_duplicate_tensor(honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.safetensors"
    data = honest.read_bytes().replace(b'"nothing":{', b'"noise"  :{', 1)
    path.write_bytes(data)
    with pytest.raises(FormatError, match="duplicate key 'noise'"):
        verify(path, None, threads=1, progress=QUIET)


def test_a_newer_minor_version_is_read(honest: Path, tmp_path: Path) -> None:
    archive = Archive.read(honest)
    archive.manifest |= {"format": [1, 7], "remark": "unknown keys mean nothing to an older reader"}
    verify(archive.write(tmp_path / "newer.safetensors"), None, threads=1, progress=QUIET)


def test_metadata_of_the_container_must_be_that_of_the_source(honest: Path, tmp_path: Path) -> None:
    path = Archive.read(honest).write(tmp_path / "other.safetensors", {"format": "tf"})
    with pytest.raises(IntegrityError, match="metadata"):
        verify(path, None, threads=1, progress=QUIET)


def test_a_header_rewritten_by_another_program(honest: Path, tmp_path: Path) -> None:
    """Tools that add metadata load and save the header; the digest tells."""
    data = honest.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    document = json.loads(data[8:end])
    document["__metadata__"]["note"] = "converted"
    path = tmp_path / "rewritten.safetensors"
    path.write_bytes(framed(document) + data[end:])
    with pytest.raises(IntegrityError, match="rewritten by another program"):
        verify(path, None, threads=1, progress=QUIET)


def test_framing_is_as_the_format_says() -> None:
    assert framed({}) == struct.pack("<Q", 8) + b"{}      "
