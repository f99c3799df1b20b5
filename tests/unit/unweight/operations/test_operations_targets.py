"""Targets of whole runs: what `--force` may replace, and what appears during the work."""

import re
from pathlib import Path

import pytest

from tests.support.models import small_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.report import OperationReport
from unweight_codecs.errors import UsageError

QUIET = NoProgress()


def packed(source: Path, target: Path) -> OperationReport:
    return compress(source, target, CompressOptions(force=True), QUIET)


def unpacked(source: Path, target: Path) -> OperationReport:
    return decompress(source, target, threads=0, force=True, progress=QUIET)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = small_model(tmp_path / "model" / "model.safetensors").parent
    small_model(folder / "unet" / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def coded(model: Path) -> Path:
    return Path(packed(model, model.with_name("model.unweight")).target)


@pytest.mark.parametrize("name", ["thesis.txt", ".hidden", "unet/notes/deep.md", ".git/config"])
def test_force_keeps_a_directory_that_holds_more(name: str, model: Path, coded: Path) -> None:
    for source, target, work in ((model, coded, packed), (coded, model, unpacked)):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text("precious")
        before = contents(target)
        with pytest.raises(UsageError, match=f"{re.escape(str(target / name))}: is not of"):
            work(source, target)
        assert contents(target) == before
        (target / name).unlink()


def test_force_keeps_what_appears_during_the_work(model: Path, coded: Path) -> None:
    class Writer(NoProgress):
        def advance(self, nbytes: int) -> None:
            (coded / "thesis.txt").write_text("precious")

    with pytest.raises(UsageError, match=r"thesis\.txt: is not of"):
        compress(model, None, CompressOptions(force=True), Writer())
    assert (coded / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_appears_during_the_work_is_not_replaced(
    kind: str, model: Path, tmp_path: Path
) -> None:
    class Writer(NoProgress):
        target = tmp_path / "out"

        def begin(self, title: str, total: int) -> None:
            path = self.target
            if kind == "directory":
                self.target.mkdir()
                path = self.target / "notes"
            path.write_text("precious")

    def check(target: Path) -> None:
        path = target / "notes" if kind == "directory" else target
        assert path.read_text() == "precious"

    source = model if kind == "directory" else model / "model.safetensors"
    with pytest.raises(UsageError, match="appeared"):
        compress(source, Writer.target, CompressOptions(), Writer())
    check(Writer.target)
    coded = Path(compress(source, None, CompressOptions(), QUIET).target)
    Writer.target = tmp_path / "restored"
    with pytest.raises(UsageError, match="appeared"):
        decompress(coded, Writer.target, threads=0, force=False, progress=Writer())
    check(Writer.target)
