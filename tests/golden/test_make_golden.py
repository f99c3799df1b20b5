"""The writer of golden files adds and never replaces, and writes the same on every kernel."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import golden_gguf, golden_safetensors
from fixtures.golden_folder import SUMS, VERSION, GoldenFolder
from fixtures.golden_model import Coding, GoldenModel, safetensors_file
from fixtures.make_golden import BOUNDED, LOSSLESS, add_missing, golden_models
from unweight_codecs.kernels import ENVIRONMENT_VARIABLE
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.tensor_spec import BLOCK_DTYPES

FAST = (Coding("fast", "fast"),)
ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def zeros(file: str = "zeros.safetensors", codings: tuple[Coding, ...] = FAST) -> GoldenModel:
    tensors = [("zeros", "F32", (1050,), bytes(4200))]
    return GoldenModel(file, lambda: safetensors_file(tensors), codings)


def test_a_listed_file_is_never_written_again(tmp_path: Path) -> None:
    folder = GoldenFolder(tmp_path)
    path = folder.add("model", b"golden")
    with pytest.raises(FileExistsError, match="never written again"):
        folder.add("model", b"other")
    path.unlink()  # still listed: it must come back from where it was kept
    with pytest.raises(FileExistsError, match="never written again"):
        folder.add("model", b"golden")
    folder.note("model.restored", "0" * 64)
    with pytest.raises(FileExistsError, match="never written again"):
        folder.note("model.restored", "1" * 64)


def test_a_file_that_is_not_listed_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"from elsewhere")
    with pytest.raises(FileExistsError):
        GoldenFolder(tmp_path).add("model", b"golden")
    assert contents(tmp_path) == {"model": b"from elsewhere"}


def test_another_encoder_and_other_models_change_no_file(tmp_path: Path) -> None:
    folder = GoldenFolder(tmp_path)
    assert len(add_missing(folder, [zeros()])) == 2
    before = contents(tmp_path)
    changed = GoldenModel("zeros.safetensors", lambda: b"another original", FAST)
    assert add_missing(folder, [changed]) == []
    assert contents(tmp_path) == before


def test_the_list_only_grows(tmp_path: Path) -> None:
    folder = GoldenFolder(tmp_path)
    add_missing(folder, [zeros()])
    before = contents(tmp_path)
    new = zeros(codings=(*FAST, Coding("max", "max"))), zeros("other.safetensors")
    assert [path.name for path in add_missing(folder, new)] == [
        "zeros.max.unweight.safetensors",
        "other.safetensors",
        "other.fast.unweight.safetensors",
    ]
    after = contents(tmp_path)
    assert after.pop(SUMS).startswith(before.pop(SUMS))
    assert after.items() > before.items()


def test_a_new_block_type_gets_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = GoldenFolder(tmp_path)
    monkeypatch.setattr(golden_gguf, "SHORT_BLOCKS", ("Q4_0", "Q8_0"))  # as if others were new
    monkeypatch.setattr(golden_gguf, "LONG_BLOCKS", tuple(BLOCK_DTYPES.keys() - {"Q4_0", "Q8_0"}))
    assert not any(model.stem.startswith("block-") for model in golden_gguf.gguf_models())
    monkeypatch.setattr(golden_gguf, "SHORT_BLOCKS", ("Q4_0",))
    new = [model for model in golden_gguf.gguf_models() if model.stem.startswith("block-")]
    names = [path.name for path in add_missing(folder, new)]
    assert names == ["block-Q8_0.gguf", "block-Q8_0.default.unweight.gguf"]


def test_a_new_dtype_gets_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {name: row for name, row in golden_safetensors.MODELS.items() if name != "packed"}
    monkeypatch.setattr(golden_safetensors, "MODELS", models)  # as if its dtypes were new
    new = [
        model
        for model in golden_safetensors.safetensors_models()
        if model.stem.startswith("dtype-")
    ]
    assert {model.stem for model in new} >= {"dtype-F4", "dtype-F6_E2M3", "dtype-F6_E3M2"}
    assert len(add_missing(GoldenFolder(tmp_path), new)) == 2 * len(new)


@pytest.fixture(scope="module")
def anew(tmp_path_factory: pytest.TempPathFactory, kernels: list[str]) -> Path:
    """Start the folder of a version from nothing, as the script does on the fastest kernels."""
    root = tmp_path_factory.mktemp("golden")
    environment = {ENVIRONMENT_VARIABLE: kernels[-1]}
    command = [sys.executable, "-m", "fixtures.make_golden", str(root)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return root / VERSION


def test_an_empty_folder_gets_everything(anew: Path) -> None:
    for name, models in golden_models().items():
        listed = GoldenFolder(anew / name).digests()
        assert {model.file for model in models} < listed.keys()
        assert add_missing(GoldenFolder(anew / name), models) == []


def test_lossless_files_are_the_same_on_every_kernel(
    anew: Path, each_kernel: str, tmp_path: Path
) -> None:
    add_missing(GoldenFolder(tmp_path), golden_models()[LOSSLESS])
    assert contents(tmp_path) == contents(anew / LOSSLESS)


def test_bounded_files_are_those_of_the_reference(
    anew: Path, use_kernel: Callable[[str], None], tmp_path: Path
) -> None:
    use_kernel(ReferenceKernels.name)
    add_missing(GoldenFolder(tmp_path), golden_models()[BOUNDED])
    assert contents(tmp_path) == contents(anew / BOUNDED)
