"""GGUF files through the operations: whatever a file looks like, it comes back byte for byte."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType
from gguf.scripts import gguf_dump

from tests.support.gguf_files import (
    BF16,
    F32,
    I8,
    Q4_1,
    NewTensor,
    aligned,
    array,
    blocks,
    file_of,
    key,
    model_of,
    small_gguf,
    string,
    tensor,
    text,
    unit_bytes,
    vocabulary,
)
from tests.support.models import gaussian
from unweight.archive import ArchiveReader
from unweight.containers.gguf.ggml_types import GGML_TYPES
from unweight.containers.gguf.header import parse_header, text_of
from unweight.containers.gguf.values import ValueType
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.inspect.header import inspect_header
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import FormatError, IntegrityError
from unweight_codecs.presets import PRESETS

QUIET = NoProgress()
ARCHITECTURE = text(b"general.architecture", b"llama")
WEIGHT = NewTensor(b"w", BF16, (64, 96), gaussian("BF16", (96, 64), 1).data)
QUANTS = NewTensor(b"q", Q4_1, (320, 40), blocks(Q4_1, 400, 2))
SMALL = NewTensor(b"s", F32, (3,), struct.pack("<3f", 1, -2, 3))
TENSORS = (WEIGHT, SMALL, QUANTS)


def weight(name: bytes) -> NewTensor:
    return NewTensor(name, WEIGHT.type_id, WEIGHT.ne, WEIGHT.data)


SCALARS = {
    ValueType.UINT8: b"\xff",
    ValueType.INT8: b"\x80",
    ValueType.UINT16: b"\xff\xfe",
    ValueType.INT16: b"\x00\x80",
    ValueType.UINT32: b"\xff" * 4,
    ValueType.INT32: b"\x00\x00\x00\x80",
    ValueType.FLOAT32: struct.pack("<f", 0.1),
    ValueType.BOOL: b"\x01",
    ValueType.STRING: string("größe\n".encode()),
    ValueType.UINT64: b"\xff" * 8,
    ValueType.INT64: b"\x00" * 7 + b"\x80",
    ValueType.FLOAT64: struct.pack("<d", -0.1),
}


def swapped() -> bytes:
    """The second tensor's data come first."""
    table = [tensor(b"w", WEIGHT.ne, 32, BF16), tensor(b"s", SMALL.ne, 0, F32)]
    return file_of([ARCHITECTURE], table, SMALL.data.ljust(32, b"\0") + WEIGHT.data)


def every_type() -> bytes:
    tensors = []
    for number, kind in GGML_TYPES.items():
        count = 5000 // unit_bytes(kind) + 1
        ne = (count * kind.block_elements,)
        tensors.append(NewTensor(kind.name.encode(), number, ne, blocks(number, count, number)))
    return model_of([ARCHITECTURE], tensors)


def empty_tensors() -> bytes:
    """Tensors without bytes at the start, between others and after the last padding."""
    nothing = [NewTensor(b"e%d" % k, F32, (4, 0), b"") for k in range(3)]
    return model_of([ARCHITECTURE], [nothing[0], WEIGHT, nothing[1], SMALL, nothing[2]])


CASES: dict[str, Callable[[], bytes]] = {
    "plain": lambda: model_of([ARCHITECTURE], TENSORS),
    "version 2": lambda: model_of([ARCHITECTURE], TENSORS, version=2),
    "alignment 64": lambda: model_of([ARCHITECTURE, aligned(64)], TENSORS, alignment=64),
    "alignment 1": lambda: model_of([aligned(1), ARCHITECTURE], TENSORS, alignment=1),
    "alignment 8192": lambda: model_of([ARCHITECTURE, aligned(8192)], TENSORS, alignment=8192),
    "padding that is not zero": lambda: model_of([ARCHITECTURE], TENSORS, filler=b"junk"),
    "no last padding": lambda: model_of([ARCHITECTURE], TENSORS[:2], last_padding=False),
    "32 bytes after the last tensor": lambda: model_of([ARCHITECTURE], [WEIGHT]) + bytes(32),
    "order swapped": swapped,
    "no tensors": lambda: file_of([ARCHITECTURE]),
    "no tensors and no last padding": lambda: file_of([ARCHITECTURE], alignment=1),
    "no keys": lambda: model_of([], TENSORS),
    "nothing at all": lambda: file_of(),
    "empty tensors": empty_tensors,
    "no dimensions": lambda: model_of([ARCHITECTURE], [NewTensor(b"x", F32, (), bytes(4)), WEIGHT]),
    "only stored tensors": lambda: model_of([ARCHITECTURE], [SMALL]),
    "every value type": lambda: model_of(
        [key(kind.name.encode(), kind, value) for kind, value in SCALARS.items()], TENSORS
    ),
    "arrays of every value type": lambda: model_of(
        [
            key(kind.name.encode(), ValueType.ARRAY, array(kind, 70, value * 70))
            for kind, value in SCALARS.items()
        ],
        TENSORS,
    ),
    "a vocabulary": lambda: model_of(
        [
            ARCHITECTURE,
            key(b"tokenizer.ggml.tokens", ValueType.ARRAY, vocabulary(20_000)),
            key(b"tokenizer.ggml.scores", ValueType.ARRAY, array(6, 20_000, bytes(80_000))),
        ],
        TENSORS,
    ),
    "a long template": lambda: model_of([text(b"template", b"{% %}\xc3\xa4" * 9999)], TENSORS),
    "an architecture that is no text": lambda: model_of(
        [key(b"general.architecture", ValueType.UINT8, b"\x07")], TENSORS
    ),
    "a name of 500 bytes": lambda: model_of([], [weight(b"n" * 500)]),
}
# The gguf package cannot open these: names must be UTF-8 to it, and types known.
UNREADABLE: dict[str, Callable[[], bytes]] = {
    "every tensor type": every_type,
    "names that are not UTF-8": lambda: model_of(
        [ARCHITECTURE, text(b"k\xff\xfe", b"v\xff"), text("schlüssel".encode(), b"\xc3")],
        [weight(b"w\xff"), weight(b"w\xfe")],
    ),
    "empty name": lambda: model_of([ARCHITECTURE], [weight(b"")]),
    "nested arrays": lambda: model_of(
        [
            key(
                b"nested",
                ValueType.ARRAY,
                array(ValueType.ARRAY, 70, array(ValueType.UINT8, 3, b"abc") * 70),
            )
        ],
        TENSORS,
    ),
}

every_case = pytest.mark.parametrize("case", [*CASES, *UNREADABLE])


def written(path: Path, case: str) -> Path:
    path.write_bytes((CASES | UNREADABLE)[case]())
    return path


def packed(source: Path, preset: str = "default", threads: int = 1) -> Path:
    target = source.with_name(f"{source.stem}.{preset}.{threads}.packed")
    compress(source, target, CompressOptions(preset=preset, threads=threads), QUIET)
    return target


@every_case
@pytest.mark.parametrize("preset", PRESETS)
def test_round_trip(case: str, preset: str, tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", case)
    coded, restored = packed(source, preset), tmp_path / "restored.gguf"
    verify(coded, source, threads=2, progress=QUIET)
    decompress(coded, restored, threads=2, force=False, progress=QUIET)
    assert restored.read_bytes() == source.read_bytes()
    assert packed(source, preset, threads=2).read_bytes() == coded.read_bytes()


@every_case
def test_all_keys_and_tensors_stay(case: str, tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", case)
    before = parse_header(source.read_bytes())
    coded = packed(source)
    after = parse_header(coded.read_bytes())
    shown = [k.name for k in after.keys]
    assert shown[:3] == [b"unweight.digest", b"unweight.manifest", b"unweight.source_header"]
    kept = [name for name in shown if not name.startswith(b"unweight.")]
    added = [] if b"general.architecture" in [k.name for k in before.keys] else kept[:1]
    assert kept == added + [k.name for k in before.keys]
    assert {t.name for t in after.tensors} == {t.name for t in before.tensors}
    assert after.alignment == before.alignment
    for t in after.tensors:
        assert t.offset % after.alignment == 0


@pytest.mark.parametrize("case", CASES)
def test_the_reference_library_opens_it(case: str, tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", case)
    coded = packed(source)
    reader, original = GGUFReader(coded), GGUFReader(source)
    assert reader.fields["general.architecture"].contents() == "unweight"
    before = original.fields.get("general.architecture")
    after = reader.fields.get("unweight.architecture")
    assert (after and after.contents()) == (before and before.contents())
    for name, field in original.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        shown = reader.fields[name]
        assert shown.types == field.types or field.types[0] is GGUFValueType.ARRAY, name
        if field.types[0] is not GGUFValueType.ARRAY:
            assert shown.contents() == field.contents(), name
    with ArchiveReader(coded) as archive:
        for here, there in zip(reader.tensors, original.tensors, strict=False):
            if archive.is_coded(here.name):
                assert here.tensor_type.name == "I8"
            elif here.name == there.name:
                np.testing.assert_array_equal(here.data, there.data)


def test_gguf_dump_shows_every_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    coded = packed(written(tmp_path / "m.gguf", "a vocabulary"))
    monkeypatch.setattr("sys.argv", ["gguf-dump", str(coded)])
    gguf_dump.main()
    page = capsys.readouterr().out
    for words in (
        "general.architecture = 'unweight'",
        "unweight.architecture = 'llama'",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores",
        "unweight.manifest",
    ):
        assert words in page


def test_a_vocabulary_is_kept_compressed(tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", "a vocabulary")
    header = parse_header(source.read_bytes())
    coded = packed(source).read_bytes()
    assert len(coded[: parse_header(coded).data_start]) < 0.4 * header.data_start


def test_the_smallest_preset_compresses_a_large_vocabulary_best(tmp_path: Path) -> None:
    keys = [ARCHITECTURE, key(b"tokenizer.tokens", ValueType.ARRAY, vocabulary(30_000))]
    source = tmp_path / "m.gguf"
    source.write_bytes(model_of(keys, [SMALL]))
    sizes = {preset: packed(source, preset).stat().st_size for preset in PRESETS}
    assert sizes["max"] < sizes["default"] == sizes["fast"]


def test_a_file_without_anything_to_code_grows_by_its_header_only(tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", "only stored tensors")
    assert packed(source).stat().st_size < source.stat().st_size + 3000


@pytest.mark.parametrize("case", ["plain", "every tensor type", "names that are not UTF-8"])
def test_inspecting_shows_the_tensors_as_they_were(case: str, tmp_path: Path) -> None:
    source = written(tmp_path / "m.gguf", case)
    before, after = inspect_header(source), inspect_header(packed(source))
    assert (before.container, before.format_version) == ("gguf", 0)
    assert (after.container, after.format_version) == ("gguf", 1)
    assert after.source_header_bytes == before.header_bytes
    assert [(t.name, t.dtype, t.shape) for t in after.tensors] == [
        (t.name, t.dtype, t.shape) for t in before.tensors
    ]
    names = {text_of(t.name) for t in parse_header(source.read_bytes()).tensors}
    assert {t.name for t in after.tensors} == names


def test_compressing_twice_is_refused(tmp_path: Path) -> None:
    coded = packed(small_gguf(tmp_path / "m.gguf"))
    with pytest.raises(FormatError, match=f"{coded}: already compressed by Unweight"):
        packed(coded)


@pytest.mark.parametrize(
    "name", [b"unweight.digest", b"unweight.manifest", b"unweight.padding", b"unweight.x"]
)
@pytest.mark.parametrize("value_type", [ValueType.STRING, ValueType.UINT8])
def test_a_file_with_keys_of_ours_is_refused(
    name: bytes, value_type: ValueType, tmp_path: Path
) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(model_of([key(name, value_type, SCALARS[value_type])], TENSORS))
    with pytest.raises(FormatError, match=f"^{source}: already compressed .* '{name.decode()}'"):
        packed(source)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9])
def test_a_file_cut_short_is_refused(share: float, tmp_path: Path) -> None:
    source = small_gguf(tmp_path / "m.gguf")
    source.write_bytes(source.read_bytes()[: int(share * source.stat().st_size)])
    with pytest.raises(FormatError, match=f"^{source}: "):
        packed(source)
    assert list(tmp_path.iterdir()) == [source]


def test_the_key_of_the_manifest_alone_does_not_make_an_archive(tmp_path: Path) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(model_of([text(b"unweight.manifest", b"{}")], [SMALL]))
    with pytest.raises(IntegrityError, match="digest"):
        verify(source, None, threads=1, progress=QUIET)


def test_noise_is_stored(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(9000)
    source = tmp_path / "m.gguf"
    source.write_bytes(model_of([ARCHITECTURE], [NewTensor(b"noise", I8, (9000,), data)]))
    with ArchiveReader(packed(source)) as archive:
        assert not archive.is_coded("noise")
