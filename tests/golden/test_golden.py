"""Files of earlier versions decode for ever, on every kernel."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.golden_folder import SUMS, VERSION, GoldenFolder
from fixtures.make_golden import GOLDEN, LOSSLESS
from unweight.archive import ArchiveReader
from unweight.containers.registry import CONTAINERS
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.layouts.contexts import PREDICTED
from unweight_codecs.model import BUILT_IN_CODERS
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DTYPES

FOLDERS = sorted(GOLDEN.glob(f"*/{LOSSLESS}"))
CODED = sorted(path for folder in FOLDERS for path in folder.glob("*.unweight.*"))
ORIGINALS = sorted(
    path
    for folder in FOLDERS
    for path in folder.iterdir()
    if path not in CODED
    if path.name != SUMS
)
MAX_BYTES, MAX_TOTAL_BYTES = 80_000, 700_000  # of a file, and of all files of a version

golden = pytest.mark.parametrize(
    "coded", CODED, ids=lambda path: f"{path.parts[-3]}-{path.name.split('.unweight')[0]}"
)
of_each_version = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.parent.name)


def original_of(coded: Path) -> Path:
    (original,) = (
        path
        for path in ORIGINALS
        if path.parent == coded.parent and path.stem == coded.name.split(".")[0]
    )
    return original


def test_every_version_has_golden_files() -> None:
    assert GOLDEN / VERSION / LOSSLESS in FOLDERS
    assert {original_of(path) for path in CODED} == set(ORIGINALS)


@of_each_version
def test_nobody_changed_a_golden_file(folder: Path) -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != SUMS
    }
    assert found == GoldenFolder(folder).digests()


@of_each_version
def test_golden_files_are_small(folder: Path) -> None:
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) < MAX_BYTES
    assert sum(sizes) < MAX_TOTAL_BYTES


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
    assert seen.containers == set(CONTAINERS)
    assert seen.dtypes == {*DTYPES, *BLOCK_DTYPES}
    assert seen.predicted == {(name, stream) for name in PREDICTED for stream in PREDICTED[name]}
    assert seen.coders == set(BUILT_IN_CODERS)
    assert seen.presets == set(PRESETS)
    assert seen.escapes > 0
    assert seen.contexts > 1
    assert seen.tables > 1
    assert seen.chunks > 1
    assert len(seen.mantissa_bits) > 1
