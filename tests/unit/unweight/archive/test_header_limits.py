"""Headers of sources near a limit: what is compressed comes back, all else is refused at once."""

import json
import struct
from pathlib import Path

import pytest

from tests.support.memory import at_most_more
from tests.support.surgery import Archive
from unweight.containers import safetensors, strict_json
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError

QUIET = NoProgress()


def write(path: Path, text: str) -> Path:
    header = text.encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(8)))
    return path


def tensor(name: str) -> str:
    return json.dumps({name: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}})


def escaped(name: str) -> str:
    return tensor("@").replace("@", "".join(f"\\u{ord(letter):04x}" for letter in name))


SOURCES = {
    "spaces after the JSON": tensor("weight") + " " * 1_000_000,
    "white space inside": tensor("weight").replace("{", "{\n" + "\t" * 200_000),
    "escapes where none are needed": escaped("weight" * 5_000),
    "a little more than goes without padding": tensor("weight") + " " * 75_000,
}


@pytest.mark.parametrize("case", SOURCES)
def test_odd_headers_come_back(tmp_path: Path, case: str) -> None:
    source = write(tmp_path / "odd.safetensors", SOURCES[case])
    packed, restored = tmp_path / "packed", tmp_path / "restored"
    compress(source, packed, CompressOptions(), QUIET)
    verify(packed, source, threads=1, progress=QUIET)
    decompress(packed, restored, threads=1, force=False, progress=QUIET)
    assert restored.read_bytes() == source.read_bytes()
    assert packed.stat().st_size < source.stat().st_size


def test_a_source_header_out_of_proportion(tmp_path: Path) -> None:
    source = write(tmp_path / "odd.safetensors", SOURCES["spaces after the JSON"])
    packed = tmp_path / "packed.safetensors"
    compress(source, packed, CompressOptions(), QUIET)
    forged = Archive.read(packed).write(tmp_path / "forged.safetensors")  # drops the spaces
    assert forged.stat().st_size < packed.stat().st_size
    with at_most_more(16 << 20), pytest.raises(IntegrityError, match="impossible size"):
        verify(forged, None, threads=1, progress=QUIET)


def test_a_header_too_large_for_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "long.safetensors", tensor("weight" * 1_000))
    monkeypatch.setattr(safetensors, "MAX_HEADER_BYTES", 6_200)
    with pytest.raises(FormatError, match=r"cannot be compressed: header of .* exceeds") as caught:
        compress(source, tmp_path / "packed", CompressOptions(), QUIET)
    assert str(source) in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]


def test_a_manifest_too_complex_to_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "model.safetensors", tensor("weight"))
    monkeypatch.setattr(strict_json, "MAX_STRUCTURE", 20)
    with pytest.raises(FormatError, match="manifest is too complex") as caught:
        compress(source, tmp_path / "packed", CompressOptions(), QUIET)
    assert str(source) in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]
