"""Error-bounded files of earlier versions restore to the same bits for ever, on every kernel."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures.golden_folder import SUMS, VERSION, GoldenFolder
from fixtures.make_golden import BOUNDED, GOLDEN, restored_name
from unweight.archive import ArchiveReader
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify

if TYPE_CHECKING:
    from unweight_codecs.model import TensorModel

FOLDERS = sorted(GOLDEN.glob(f"*/{BOUNDED}"))
CODED = sorted(path for folder in FOLDERS for path in folder.glob("*.unweight.*"))

golden = pytest.mark.parametrize(
    "coded", CODED, ids=lambda path: f"{path.parts[-3]}-{path.name.split('.unweight')[0]}"
)


def test_there_are_golden_files_of_this_version() -> None:
    assert any(GOLDEN / VERSION in path.parents for path in CODED)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.parent.name)
def test_nobody_changed_a_golden_file(folder: Path) -> None:
    digests = GoldenFolder(folder).digests()
    files = {path.name for path in folder.iterdir()} - {SUMS}
    restored = {restored_name(name) for name in files if ".unweight." in name}
    assert digests.keys() == files | restored
    for name in files:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digests[name]


@golden
def test_decoding(each_kernel: str, coded: Path, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    decompress(coded, target, threads=1, force=False, progress=NoProgress())
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    assert digest == GoldenFolder(coded.parent).digests()[restored_name(coded.name)]


@golden
def test_verifying(coded: Path) -> None:
    verify(coded, coded.with_name("model.safetensors"), threads=2, progress=NoProgress())


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
