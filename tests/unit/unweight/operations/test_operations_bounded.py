"""Files compressed within an error bound: what they hold, what comes back, what is reported."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support import bounded, gguf_files
from tests.support.bounded_files import (
    CHANGED,
    EPSILON,
    QUIET,
    SHAPE,
    matrix,
    packed,
    restored,
    rows,
    tensors,
    verified,
    write_source,
)
from tests.support.models import Tensor, write_model
from tests.support.surgery import Archive
from unweight.archive import ArchiveReader
from unweight.containers.gguf.ggml_types import type_id_of
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.report import CheckKind
from unweight_cli.render.checks import checked
from unweight_codecs.bounded.float_words import values_of
from unweight_codecs.errors import UsageError
from unweight_codecs.kernels import kernel_status
from unweight_codecs.presets import PRESETS

KERNELS = [status.name for status in kernel_status() if status.available]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def coded(source: Path) -> Path:
    packed(source, source.with_name("coded"))
    return source.with_name("coded")


def contents(data: bytes, of: Path) -> dict[str, bytes]:
    """Return the bytes of each tensor in a safetensors file, by the layout of another one."""
    start, found = len(data) - sum(len(t.data) for t in tensors().values()), {}
    assert data[:start] == of.read_bytes()[:start]
    for name, tensor in tensors().items():
        found[name] = data[start : start + len(tensor.data)]
        start += len(tensor.data)
    return found


def test_only_matrices_of_floats_change_and_within_the_bound(source: Path, coded: Path) -> None:
    found = contents(restored(coded), source)
    for name, tensor in tensors().items():
        before, after = (np.frombuffer(data, np.uint8) for data in (tensor.data, found[name]))
        if name not in CHANGED:
            assert found[name] == tensor.data, name
            continue
        whole, chunks = bounded.relative_errors(before, after, tensor.dtype, 5120)
        assert 0.5 * EPSILON < whole <= EPSILON
        assert max(chunks) <= EPSILON


def test_reports_say_what_was_allowed_and_what_it_is(source: Path, tmp_path: Path) -> None:
    report = packed(source, tmp_path / "coded")
    data = restored(tmp_path / "coded")
    file = report.to_dict()["files"][0]
    assert file["source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert file["restored_sha256"] == hashlib.sha256(data).hexdigest()
    assert file["restored_sha256"] != file["source_sha256"]
    found = contents(data, source)
    for row in file["tensors"]:
        name = row["name"]
        if name not in CHANGED:
            assert (row["epsilon"], row["error"], row["max_error"]) == (0, 0, 0)
            assert not row["pipeline"].endswith("bounded*")
            continue
        assert row["pipeline"] == "default bounded*"
        assert row["epsilon"] == EPSILON
        before, after = (
            np.frombuffer(data, np.uint8) for data in (tensors()[name].data, found[name])
        )
        whole, _ = bounded.relative_errors(before, after, name, 1 << 20)
        assert row["error"] == pytest.approx(whole, rel=1e-9)
        finite = np.isfinite(values_of(before, name))
        values = [values_of(words, name)[finite].astype(np.float64) for words in (before, after)]
        assert row["max_error"] == np.abs(values[0] - values[1]).max()
    assert (report.checked, report.exact) == (CheckKind.WRITTEN, False)
    assert (report.bounded_tensors, report.max_epsilon) == (3, EPSILON)
    assert report.worst_error == max(row["error"] for row in file["tensors"])
    assert checked(report).endswith("in 3 of 10 tensors, the others bit-exact: verified")


def test_other_operations_report_the_same(source: Path, coded: Path, tmp_path: Path) -> None:
    expected = packed(source, tmp_path / "coded")
    for report in (
        decompress(coded, tmp_path / "back", threads=1, force=False, progress=QUIET),
        verified(coded),
        verified(coded, source),
    ):
        assert report.files[0].restored_sha256 == expected.files[0].restored_sha256
        assert report.files[0].source_sha256 == expected.files[0].source_sha256
        for name, row in rows(report).items():
            assert row.epsilon == rows(expected)[name].epsilon
            assert row.error == pytest.approx(rows(expected)[name].error, rel=1e-9)
            assert row.max_error == rows(expected)[name].max_error


def test_a_lossless_file_has_one_digest(source: Path, tmp_path: Path) -> None:
    report = packed(source, tmp_path / "coded", epsilon=0.0)
    assert report.files[0].restored_sha256 == report.files[0].source_sha256
    assert (report.exact, report.bounded_tensors, report.worst_error) == (True, 0, 0.0)
    assert checked(report) == "bit-exact: verified"
    report = verified(tmp_path / "coded", source)
    assert report.files[0].restored_sha256 == report.files[0].source_sha256


@pytest.mark.parametrize("preset", PRESETS)
def test_without_a_bound_files_are_those_of_the_lossless_mode(
    source: Path, tmp_path: Path, preset: str
) -> None:
    compress(source, tmp_path / "one", CompressOptions(preset=preset), QUIET)
    for number, bounds in enumerate(({}, {"BF16": 0.5})):
        options = CompressOptions(preset=preset, epsilon=0.0, epsilons=bounds)
        compress(source, tmp_path / f"{number}", options, QUIET)
        assert (tmp_path / f"{number}").read_bytes() == (tmp_path / "one").read_bytes()


def test_a_bound_that_no_tensor_uses_gives_a_lossless_file(tmp_path: Path) -> None:
    """All tensors are vectors, or smaller without an error."""
    kept = {name: tensor for name, tensor in tensors().items() if name not in CHANGED}
    source = write_model(tmp_path / "model.safetensors", kept)
    report = packed(source, tmp_path / "coded")
    archive = Archive.read(tmp_path / "coded")
    assert archive.manifest["mode"] == "lossless"
    assert archive.manifest["features"] == []
    assert "restored_sha256" not in archive.manifest["source"]
    assert report.files[0].restored_sha256 == report.files[0].source_sha256
    assert restored(tmp_path / "coded") == source.read_bytes()


def test_a_tensor_that_is_smaller_without_an_error_stays_exact(source: Path, coded: Path) -> None:
    with ArchiveReader(coded) as archive:
        assert archive.manifest.coded["demanding"].epsilon == 0
        assert archive.pipeline_name("demanding") == "default*"  # chunks are those asked for
        assert archive.manifest.coded["BF16"].epsilon == EPSILON


def test_bounds_by_tensor(source: Path, tmp_path: Path) -> None:
    bounds = {"BF16": 0.1, "F32": 0.0, "demanding": 0.5}
    found = rows(packed(source, tmp_path / "coded", epsilons=bounds))
    assert found["BF16"].epsilon == 0.1
    assert 0.05 < found["BF16"].error <= 0.1
    assert found["F16"].epsilon == EPSILON
    assert found["F32"].epsilon == found["F32"].error == 0
    assert found["demanding"].error > 0.25
    verified(tmp_path / "coded", source)


def test_a_recipe_with_bounds(source: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[[rule]]\ntensors = "BF16"\npreset = "max"\nepsilon = 0.2\n'
        '[[rule]]\ntensors = "F16"\npreset = "fast"\nepsilon = 0\n'
        '[[rule]]\ntensors = "F32"\npreset = "stored"\n'
    )
    found = rows(packed(source, tmp_path / "coded", recipe=recipe, epsilon=0.0))
    assert (found["BF16"].pipeline, found["BF16"].epsilon) == ("max bounded*", 0.2)
    assert (found["F16"].pipeline, found["F16"].epsilon) == ("fast*", 0)
    assert (found["F32"].pipeline, found["F32"].epsilon) == ("stored", 0)
    verified(tmp_path / "coded", source)


@pytest.mark.parametrize("preset", PRESETS)
def test_bytes_do_not_depend_on_threads(source: Path, tmp_path: Path, preset: str) -> None:
    results = set()
    for threads in (1, 2, 5):
        packed(source, tmp_path / f"{threads}", preset=preset, threads=threads)
        results.add((tmp_path / f"{threads}").read_bytes())
    assert len(results) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_restored_does_not_depend_on_kernels_and_threads(
    source: Path, tmp_path: Path, use_kernel: Callable[[str], None], preset: str
) -> None:
    for encoder in {KERNELS[0], "reference"}:
        use_kernel(encoder)
        packed(source, tmp_path / encoder, preset=preset)
        results = set()
        for kernel in KERNELS:
            use_kernel(kernel)
            for threads in (1, 3):
                results.add(restored(tmp_path / encoder, threads))
        assert len(results) == 1


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, float("nan"), float("inf")])
def test_bounds_that_make_no_sense(source: Path, tmp_path: Path, epsilon: float) -> None:
    with pytest.raises(UsageError, match="epsilon must be a number from 0 to 1"):
        packed(source, tmp_path / "coded", epsilon=epsilon)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_gguf_files(tmp_path: Path, preset: str) -> None:
    entries, data = [], b""
    contents = {dtype: matrix(dtype, k).tobytes() for k, dtype in enumerate(bounded.FLOATS)}
    contents["Q8_0"] = np.random.default_rng(0).integers(0, 9, 34 * 200).astype(np.uint8).tobytes()
    for dtype, content in contents.items():
        extents = (32, 200) if dtype == "Q8_0" else SHAPE[::-1]
        entries.append(gguf_files.tensor(dtype.encode(), extents, len(data), type_id_of(dtype)))
        data += content + bytes(-len(content) % 32)
    keys = [gguf_files.text(b"general.architecture", b"llama")]
    source, target = tmp_path / "model.gguf", tmp_path / "coded.gguf"
    source.write_bytes(gguf_files.file_of(keys, entries, data))
    found = rows(packed(source, target, preset=preset, epsilons={}))
    assert {name for name, row in found.items() if row.epsilon} == CHANGED
    verified(target, source)
    back = restored(target)
    assert len(back) == source.stat().st_size
    assert back.endswith(contents["Q8_0"] + bytes(-len(contents["Q8_0"]) % 32))
    start = len(back) - len(data)
    assert back[:start] == source.read_bytes()[:start]


def test_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_model(folder / "a.safetensors", tensors())
    write_model(folder / "b.safetensors", {"n": Tensor("BF16", SHAPE, matrix("BF16", 5).tobytes())})
    (folder / "config.json").write_text("{}")
    report = packed(folder, tmp_path / "coded")
    assert [sum(row.epsilon > 0 for row in file.tensors) for file in report.files] == [3, 1]
    verified(tmp_path / "coded", folder, threads=2)
    decompress(tmp_path / "coded", tmp_path / "back", threads=2, force=False, progress=QUIET)
    assert (tmp_path / "back/config.json").read_text() == "{}"
    sizes = [(path / "a.safetensors").stat().st_size for path in (folder, tmp_path / "back")]
    assert sizes[0] == sizes[1]


def test_bounds_by_name_that_fit_no_tensor(tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.safetensors", {"w": tensors()["BF16"]})
    options = CompressOptions(epsilon=EPSILON, epsilons={"other": 0.02})
    with pytest.raises(UsageError, match="no tensor has a name"):
        compress(source, None, options, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
