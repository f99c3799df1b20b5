"""Damaged files: every flipped bit and every cut is noticed, and nothing is left of the output."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.models import SMALL_MODEL_STAGES, small_model
from tests.support.surgery import Archive, Head
from unweight_codecs.errors import FormatError, IntegrityError
from unweight_codecs.operations.compress import CompressOptions, compress
from unweight_codecs.operations.decompress import decompress
from unweight_codecs.operations.progress import NoProgress
from unweight_codecs.operations.verify import verify

Check = Callable[[Path], None]
RANDOM_PAYLOAD_FLIPS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def intact(folder: Path) -> bytes:
    """Return the bytes of a small compressed file with several chunks and contexts."""
    coded = folder / "intact.safetensors"
    model = small_model(folder / "model.safetensors")
    compress(model, coded, CompressOptions(stages=SMALL_MODEL_STAGES), NoProgress())
    data = coded.read_bytes()
    coded.unlink()
    model.unlink()
    assert list(folder.iterdir()) == []
    return data


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


def header_end(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def payload_starts(path: Path) -> dict[str, tuple[int, int]]:
    """Return where the payload of each tensor begins and ends in the file."""
    archive, at, places = Archive.read(path), header_end(path.read_bytes()), {}
    for name, payload in archive.payloads.items():
        places[name] = (at, at + len(payload))
        at += len(payload)
    return places


def head_ranges(path: Path) -> list[range]:
    """Return the bytes of each head, its tables and its chunk directory."""
    archive = Archive.read(path)
    ranges = []
    for name, (start, _) in payload_starts(path).items():
        if name in archive.manifest["tensors"]:
            head, _ = Head.read(archive.payloads[name])
            ranges.append(range(start, start + len(head.to_bytes())))
    return ranges


def chunk_starts(path: Path) -> list[int]:
    """Return where each chunk begins, read from the directories: u64 checksum, u32 per stream."""
    archive, starts = Archive.read(path), []
    for name, (_, end) in payload_starts(path).items():
        if name not in archive.manifest["tensors"]:
            continue
        head, chunks = Head.read(archive.payloads[name])
        streams = {"BF16": 3, "F32": 5}[archive.manifest["tensors"][name]["dtype"]]
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


def test_the_file_has_every_part(intact: bytes, damaged: Path) -> None:
    damaged.write_bytes(intact)
    verifies(damaged)
    archive = Archive.read(damaged)
    heads = [Head.read(archive.payloads[name])[0] for name in archive.manifest["tensors"]]
    assert len(heads) == 2
    assert len(heads[0].sections[2]) > 1, "no contexts"
    assert len(chunk_starts(damaged)) == 4
    assert {"noise", "norm.bias", "nothing"} == set(archive.payloads) - set(
        archive.manifest["tensors"]
    )


# Both operations open a file in the same way, so one of them need not see every bit.
THOROUGHNESS = pytest.mark.parametrize(("check", "step"), [(decompresses, 1), (verifies, 7)])


@THOROUGHNESS
def test_every_bit_of_the_header(check: Check, step: int, intact: bytes, damaged: Path) -> None:
    flip_each(intact, damaged, range(0, 8 * header_end(intact), step), check)


@THOROUGHNESS
def test_every_bit_of_the_heads(check: Check, step: int, intact: bytes, damaged: Path) -> None:
    damaged.write_bytes(intact)
    for part in head_ranges(damaged):
        flip_each(intact, damaged, range(8 * part.start, 8 * part.stop, step), check)


@CHECKS
def test_random_bits_of_the_payload(check: Check, intact: bytes, damaged: Path) -> None:
    payload = range(8 * header_end(intact), 8 * len(intact))
    bits = random.Random(1).sample(payload, RANDOM_PAYLOAD_FLIPS)  # noqa: S311 - places to test
    flip_each(intact, damaged, bits, check)


@CHECKS
def test_every_cut_at_a_boundary(check: Check, intact: bytes, damaged: Path) -> None:
    damaged.write_bytes(intact)
    end = header_end(intact)
    places = {0, 1, 7, 8, 9, end - 1, end, len(intact) - 1}
    places |= {place for pair in payload_starts(damaged).values() for place in pair}
    places |= {part.stop for part in head_ranges(damaged)}
    places |= set(chunk_starts(damaged))
    for place in sorted(places - {len(intact)}):
        damaged.write_bytes(intact[:place])
        with refused(f"a cut at byte {place}"):
            check(damaged)


@CHECKS
@pytest.mark.parametrize("extra", [b"\0", b"\0" * 8, b"more"])
def test_bytes_after_the_end(check: Check, extra: bytes, intact: bytes, damaged: Path) -> None:
    damaged.write_bytes(intact + extra)
    with pytest.raises(FormatError, match=f"{len(extra)} bytes after"):
        check(damaged)


@CHECKS
def test_chunks_in_another_order(check: Check, intact: bytes, damaged: Path) -> None:
    damaged.write_bytes(intact)
    first, second, third, *_ = chunk_starts(damaged)
    swapped = intact[:first] + intact[second:third] + intact[first:second] + intact[third:]
    damaged.write_bytes(swapped)
    with pytest.raises(IntegrityError):
        check(damaged)


@CHECKS
def test_another_file_of_the_same_size(check: Check, intact: bytes, damaged: Path) -> None:
    end = header_end(intact)
    damaged.write_bytes(intact[:end] + bytes(len(intact) - end))
    with pytest.raises(IntegrityError):
        check(damaged)
