"""Damaged files: flipped bits and cuts are noticed, and nothing is left of the output."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.gguf_files import small_gguf
from tests.support.gguf_surgery import GgufArchive
from tests.support.models import SMALL_MODEL_STAGES, small_model
from tests.support.surgery import Archive, Head
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError

pytestmark = pytest.mark.usefixtures("without_fsync")

Check = Callable[[Path], None]
RANDOM_PAYLOAD_FLIPS = 200


@dataclass(frozen=True, slots=True)
class Intact:
    """A small compressed file with several chunks and contexts, and its parts."""

    data: bytes
    archive: Archive | GgufArchive

    @property
    def header_bytes(self) -> int:
        return self.archive.header_bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


MODELS: dict[str, tuple[Callable[[Path], Path], type[Archive] | type[GgufArchive]]] = {
    "safetensors": (small_model, Archive),
    "gguf": (small_gguf, GgufArchive),
}


@pytest.fixture(scope="module", params=MODELS)
def intact(request: pytest.FixtureRequest, folder: Path) -> Intact:
    write, surgery = MODELS[request.param]
    coded = folder / "intact"
    model = write(folder / "model")
    compress(model, coded, CompressOptions(stages=SMALL_MODEL_STAGES), NoProgress())
    found = Intact(coded.read_bytes(), surgery.read(coded))
    coded.unlink()
    model.unlink()
    assert list(folder.iterdir()) == []
    return found


@pytest.fixture
def damaged(folder: Path) -> Iterator[Path]:
    """Return where to write a damaged file; checks that nothing else was left there."""
    path = folder / "damaged.safetensors"
    yield path
    path.unlink()
    assert list(folder.iterdir()) == []


def decompresses(path: Path) -> None:
    decompress(path, path.with_name("out"), threads=1, force=False, progress=NoProgress())


def verifies(path: Path) -> None:
    verify(path, None, threads=1, progress=NoProgress())


CHECKS = pytest.mark.parametrize("check", [decompresses, verifies])


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Expect an error that the command line reports with exit code 3 or 4."""
    try:
        yield
    except (FormatError, IntegrityError):
        return
    pytest.fail(f"{what} was not noticed")


def head_ranges(archive: Archive | GgufArchive) -> list[range]:
    """Return the bytes of each head, its tables and its chunk directory."""
    ranges = []
    for name in archive.manifest["tensors"]:
        head, _ = Head.read(archive.payloads[name])
        start = archive.offsets[name]
        ranges.append(range(start, start + len(head.to_bytes())))
    return ranges


def chunk_starts(archive: Archive | GgufArchive) -> list[int]:
    """Return where each chunk begins, read from the directories: u64 checksum, u32 per stream."""
    starts = []
    for name, tensor in archive.manifest["tensors"].items():
        head, chunks = Head.read(archive.payloads[name])
        streams = {"BF16": 3, "F32": 5, "Q4_1": 5}[tensor["dtype"]]
        end = archive.offsets[name] + len(archive.payloads[name])
        at, row = end - len(chunks), 8 + 4 * streams
        for offset in range(0, len(head.directory) // row * row, row):
            starts.append(at)
            for k in range(streams):
                entry = head.directory[offset + 8 + 4 * k : offset + 12 + 4 * k]
                at += -(-(int.from_bytes(entry, "little") & 0xFFFFF) // 8) * 8
        assert at == end
    return starts


def flip_each(data: bytes, path: Path, bits: Iterable[int], check: Check) -> None:
    path.write_bytes(data)
    with path.open("r+b", buffering=0) as file:
        for bit in bits:
            place, mask = bit // 8, 1 << bit % 8
            file.seek(place)
            file.write(bytes([data[place] ^ mask]))
            with refused(f"bit {bit % 8} of byte {place}"):
                check(path)
            file.seek(place)
            file.write(data[place : place + 1])


def test_the_file_has_every_part(intact: Intact, damaged: Path) -> None:
    damaged.write_bytes(intact.data)
    verifies(damaged)
    archive = intact.archive
    heads = [Head.read(archive.payloads[name])[0] for name in archive.manifest["tensors"]]
    assert len(heads) == 2
    assert len(heads[0].sections[2]) > 1, "no contexts"
    assert len(chunk_starts(intact.archive)) == 4
    assert {"noise", "norm.bias", "nothing"} == set(archive.payloads) - set(
        archive.manifest["tensors"]
    )


# Every seventh bit is one of each byte at least, and each time another one. One checksum guards all
# bits of a part. That it sees each of them is shown on the parser of heads, where it costs nothing.
BITS = pytest.mark.parametrize(
    ("check", "first", "step"),
    [
        (decompresses, 0, 7),
        (verifies, 3, 7),
        pytest.param(decompresses, 0, 1, marks=pytest.mark.slow),
    ],
)


@BITS
def test_bits_of_every_byte_of_the_header(
    check: Check, first: int, step: int, intact: Intact, damaged: Path
) -> None:
    flip_each(intact.data, damaged, range(first, 8 * intact.header_bytes, step), check)


@BITS
def test_bits_of_every_byte_of_the_heads(
    check: Check, first: int, step: int, intact: Intact, damaged: Path
) -> None:
    for part in head_ranges(intact.archive):
        flip_each(intact.data, damaged, range(8 * part.start + first, 8 * part.stop, step), check)


@CHECKS
def test_random_bits_of_the_payload(check: Check, intact: Intact, damaged: Path) -> None:
    payload = range(8 * intact.header_bytes, 8 * len(intact.data))
    bits = random.Random(1).sample(payload, RANDOM_PAYLOAD_FLIPS)  # noqa: S311 - places to test
    flip_each(intact.data, damaged, bits, check)


@CHECKS
def test_every_cut_at_a_boundary(check: Check, intact: Intact, damaged: Path) -> None:
    damaged.write_bytes(intact.data)
    end = intact.header_bytes
    places = {0, 1, 7, 8, 9, end - 1, end, len(intact.data) - 1}
    for name, start in intact.archive.offsets.items():
        places |= {start, start + len(intact.archive.payloads[name])}
    places |= {part.stop for part in head_ranges(intact.archive)}
    places |= set(chunk_starts(intact.archive))
    for place in sorted(places - {len(intact.data)}):
        damaged.write_bytes(intact.data[:place])
        with refused(f"a cut at byte {place}"):
            check(damaged)


@CHECKS
@pytest.mark.parametrize("extra", [b"\0", b"\0" * 8, b"more"])
def test_bytes_after_the_end(check: Check, extra: bytes, intact: Intact, damaged: Path) -> None:
    damaged.write_bytes(intact.data + extra)
    with pytest.raises(FormatError, match=f"{len(extra)} bytes after"):
        check(damaged)


@CHECKS
def test_chunks_in_another_order(check: Check, intact: Intact, damaged: Path) -> None:
    data = intact.data
    first, second, third, *_ = chunk_starts(intact.archive)
    damaged.write_bytes(data[:first] + data[second:third] + data[first:second] + data[third:])
    with pytest.raises(IntegrityError):
        check(damaged)


@CHECKS
def test_another_file_of_the_same_size(check: Check, intact: Intact, damaged: Path) -> None:
    end = intact.header_bytes
    damaged.write_bytes(intact.data[:end] + bytes(len(intact.data) - end))
    with pytest.raises(IntegrityError):
        check(damaged)
