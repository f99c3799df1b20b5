"""Files of earlier versions decode for ever, on every kernel."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unweight.archive import ArchiveReader
from unweight.archive.hosts import FORMATS
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.layouts.contexts import PREDICTED
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DTYPES

FOLDER = Path(__file__).parents[2] / "fixtures" / "golden"
CODED = sorted(FOLDER.glob("*.unweight.*"))
ORIGINALS = sorted({*FOLDER.glob("*.safetensors"), *FOLDER.glob("*.gguf")} - set(CODED))
LARGEST, LARGEST_TOTAL = 80_000, 700_000

golden = pytest.mark.parametrize("coded", CODED, ids=lambda path: path.name.split(".unweight")[0])


def original_of(coded: Path) -> Path:
    return FOLDER / f"{coded.name.split('.')[0]}{coded.suffix}"


def test_there_are_golden_files() -> None:
    assert CODED
    assert {original_of(path) for path in CODED} == set(ORIGINALS)


def test_nobody_changed_a_golden_file() -> None:
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (*CODED, *ORIGINALS)
    }
    assert found == listed


def test_golden_files_are_small() -> None:
    sizes = [path.stat().st_size for path in (*CODED, *ORIGINALS)]
    assert max(sizes) < LARGEST
    assert sum(sizes) < LARGEST_TOTAL


@golden
def test_decoding(each_kernel: str, coded: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    decompress(coded, target, threads=1, force=False, progress=NoProgress())
    assert target.read_bytes() == original_of(coded).read_bytes()


@golden
def test_verifying(coded: Path) -> None:
    verify(coded, original_of(coded), threads=2, progress=NoProgress())


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", PRESETS)
def test_todays_encoder_codes_the_same_originals(
    original: Path, preset: str, tmp_path: Path, use_kernel: Callable[[str], None]
) -> None:
    coded, target = tmp_path / "coded", tmp_path / "restored"
    compress(original, coded, CompressOptions(preset=preset), NoProgress())
    use_kernel("reference")
    decompress(coded, target, threads=1, force=False, progress=NoProgress())
    assert target.read_bytes() == original.read_bytes()


class Seen:
    """What occurs in the golden files."""

    def __init__(self) -> None:
        self.dtypes: set[str] = set()
        self.coders: set[str] = set()
        self.presets: set[str] = set()
        self.mantissa_bits: set[int] = set()
        self.containers: set[str] = set()
        self.predicted: set[tuple[str, str]] = set()
        self.escapes = self.contexts = self.tables = self.chunks = 0
        for path in CODED:
            with ArchiveReader(path) as archive:
                self.containers.add(archive.index.container)
                self.presets |= {str(p["name"]).rstrip("*") for p in archive.manifest.pipelines}
                for source, here in archive.tensors():
                    if archive.is_coded(source.spec.name):
                        self._look(archive.head(source, here))

    def _look(self, head: PayloadHead) -> None:
        model, entries = head.model, head.directory["segments"]
        self.dtypes.add(model.spec.dtype)
        self.coders |= {BUILT_IN_CODERS[coder] for coder in np.unique(entries >> 28).tolist()}
        self.chunks = max(self.chunks, len(entries))
        self.predicted |= {(model.spec.dtype, stream) for stream in model.contextual}
        self.tables = max(self.tables, *map(len, model.tables.values()), 0)
        if model.layout.is_float:
            self.mantissa_bits.add(model.top_bits)
            self.escapes += int((entries[:, -1] & 0xFFFFF).sum())
        if model.context_map is not None:
            self.contexts = max(self.contexts, len(model.context_map.tables))


def test_golden_files_have_everything_the_format_has() -> None:
    seen = Seen()
    assert seen.containers == set(FORMATS)
    assert seen.dtypes == {*DTYPES, *BLOCK_DTYPES}
    assert seen.predicted == {(name, stream) for name in PREDICTED for stream in PREDICTED[name]}
    assert seen.coders == set(BUILT_IN_CODERS)
    assert seen.presets == set(PRESETS)
    assert seen.escapes > 0
    assert seen.contexts > 1
    assert seen.tables > 1
    assert seen.chunks > 1
    assert len(seen.mantissa_bits) > 1
