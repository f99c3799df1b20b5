"""Error-bounded files of earlier versions restore to the same bits for ever, on every kernel."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unweight.archive import ArchiveReader
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify

if TYPE_CHECKING:
    from unweight_codecs.model import TensorModel

FOLDER = Path(__file__).parents[2] / "fixtures" / "golden_bounded"
ORIGINAL = FOLDER / "model.safetensors"
CODED = sorted(FOLDER.glob("*.unweight.safetensors"))

golden = pytest.mark.parametrize("coded", CODED, ids=lambda path: path.name.split(".")[0])


def sums() -> dict[str, str]:
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def test_nobody_changed_a_golden_file() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"SHA256SUMS"}
    restored = {f"{path.name.split('.')[0]}.restored" for path in CODED}
    assert CODED
    assert sums().keys() == files | restored
    for name in files:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == sums()[name]


@golden
def test_decoding(each_kernel: str, coded: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    decompress(coded, target, threads=1, force=False, progress=NoProgress())
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    assert digest == sums()[f"{coded.name.split('.')[0]}.restored"]


@golden
def test_verifying(coded: Path) -> None:
    verify(coded, ORIGINAL, threads=2, progress=NoProgress())


def test_golden_files_have_everything_the_mode_has() -> None:
    models: list[TensorModel] = []
    for path in CODED:
        with ArchiveReader(path) as archive:
            assert archive.manifest.mode == "bounded"
            models += [
                archive.head(source, here).model
                for source, here in archive.tensors()
                if archive.is_coded(source.spec.name)
            ]
    assert {model.spec.dtype for model in models if model.bounded} == {"BF16", "F16", "F32"}
    changed = [model.bounded for model in models if model.bounded]
    factors = [each.factors for each in changed if each.factors]
    assert len(changed) < len(models)
    assert {each.form.table is None for each in changed} == {True, False}
    assert {each.form.low_bits > 0 for each in changed} == {True, False}
    assert any((each.steps == 0).any() for each in changed)
    assert any(found.weights.shape[:2] != (1, 1) for found in factors)
    assert any(found.weights.shape[:2] == (1, 1) for found in factors)
    assert any(len(each.steps) > 1 for each in changed)
