"""``safe_open`` and ``load_file``: what other packages read, all of it checked."""

import gc
import os
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

import unweight
from tests.support.gguf_files import small_gguf
from tests.support.models import Tensor, gaussian, small_model, write_model
from unweight_codecs.tensor_spec import DTYPES

Arrays = dict[str, NDArray[Any]]

SHAPES = {
    "a.weight": (64, 48),
    "empty": (0, 4),
    "scalar": (),
    "vector": (700,),
    "deep": (2, 3, 4, 5),
}
PLAIN = ("f8", "f4", "f2", "c8", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")


def random_arrays(seed: int) -> Arrays:
    generator = np.random.default_rng(seed)
    return {
        f"{name} {dtype}": np.asarray(8 * generator.normal(size=shape)).astype(dtype)
        for name, shape in SHAPES.items()
        for dtype in PLAIN
    }


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(random_arrays(0), path, {"format": "np", "key": "value"})
    return path


@pytest.fixture
def coded(plain: Path) -> Path:
    return Path(unweight.compress(plain).target)


@pytest.mark.parametrize("threads", [1, 3])
def test_load_file_is_that_of_safetensors(plain: Path, coded: Path, threads: int) -> None:
    expected = safetensors.numpy.load_file(plain)
    assert_same(unweight.load_file(plain), expected)
    assert_same(unweight.load_file(str(coded), threads=threads), expected)
    assert unweight.inspect(coded).mode == "lossless"
    assert any(tensor.pipeline != "stored" for tensor in unweight.inspect(coded).tensors)


def test_safe_open_is_that_of_safetensors(plain: Path, coded: Path) -> None:
    with safetensors.safe_open(plain, "np") as expected:
        for path in (plain, coded):
            with unweight.safe_open(path, framework="np", device="cpu") as file:
                assert file.keys() == expected.keys()
                assert set(file.offset_keys()) == set(expected.offset_keys())
                assert file.metadata() == expected.metadata()
                for name in expected.keys():  # noqa: SIM118 - it is no mapping
                    assert file.get_shape(name) == expected.get_slice(name).get_shape()
                    assert file.get_dtype(name) == expected.get_slice(name).get_dtype()
                    assert_same({name: file.get_tensor(name)}, {name: expected.get_tensor(name)})


def test_a_file_without_metadata_has_none(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.safetensors", {"a": gaussian("F32", (64, 64), 1)})
    for file in (path, Path(unweight.compress(path).target)):
        with unweight.open(file) as opened:
            assert opened.metadata() is None


def test_what_is_read_belongs_to_the_caller(coded: Path, plain: Path) -> None:
    for path in (coded, plain):
        with unweight.safe_open(path) as file:
            first, second = file.get_tensor("a.weight f4"), file.get_tensor("a.weight f4")
        first[...] = 0
        assert second.any()
        assert first.flags.writeable


BITS = {
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}


@pytest.mark.parametrize("dtype", BITS)
def test_floats_that_numpy_lacks(dtype: str, tmp_path: Path) -> None:
    width = DTYPES[dtype].bits // 8
    words = np.arange(1 << 16, dtype=f"<u{width}").tobytes()
    path = write_model(tmp_path / "model.safetensors", {"a": Tensor(dtype, (256, 256), words)})
    for file in (path, Path(unweight.compress(path).target)):
        array = unweight.load_file(file)["a"]
        assert array.dtype == BITS[dtype]
        assert array.shape == (256, 256)
        assert array.tobytes() == words


def test_the_package_for_them_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unweight import numpy_dtypes

    numpy_dtypes._ml_dtypes.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    path = small_model(tmp_path / "model.safetensors")
    with unweight.safe_open(path) as file:
        assert file.get_tensor("proj.weight").dtype == np.float32
        with pytest.raises(
            unweight.ResourceError, match="BF16 in NumPy needs the package ml_dtypes"
        ) as error:
            file.get_tensor("embed.weight")
    assert error.value.hint == "pip install 'unweight[numpy-dtypes]'"


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3"])
def test_elements_that_are_no_whole_bytes_have_no_array(dtype: str, tmp_path: Path) -> None:
    data = bytes(64 * 64 * DTYPES[dtype].bits // 8)
    path = write_model(tmp_path / "model.safetensors", {"a": Tensor(dtype, (64, 64), data)})
    with unweight.safe_open(path) as file:
        assert (file.get_dtype("a"), file.get_shape("a")) == (dtype, [64, 64])
        with pytest.raises(unweight.FormatError, match=f"no dtype for '{dtype}'"):
            file.get_tensor("a")


def test_gguf_is_read_as_its_package_reads_it(tmp_path: Path) -> None:
    path = small_gguf(tmp_path / "model.gguf")
    expected = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    assert any(array.dtype == np.uint8 for array in expected.values())
    for file in (path, Path(unweight.compress(path).target)):
        found = unweight.load_file(file)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes()
            if found[name].dtype != ml_dtypes.bfloat16:  # the package gives its bytes
                assert found[name].shape == array.shape
                assert found[name].dtype == array.dtype


def test_only_what_is_asked_for_is_decoded(tmp_path: Path) -> None:
    path = small_model(tmp_path / "model.safetensors")
    coded = Path(unweight.compress(path).target)
    data = bytearray(coded.read_bytes())
    data[-40] ^= 1  # in the last tensor
    coded.write_bytes(data)
    with unweight.safe_open(coded) as file:
        last = file.offset_keys()[-1]
        for name in file.offset_keys()[:-1]:
            if file.get_dtype(name) != "BF16":
                file.get_tensor(name)
        with pytest.raises(unweight.IntegrityError, match=last):
            file.get_tensor(last)
    with pytest.raises(unweight.IntegrityError, match=last):
        unweight.load_file(coded)


def test_stored_tensors_are_checked_too(tmp_path: Path) -> None:
    path = small_model(tmp_path / "model.safetensors")
    coded = Path(unweight.compress(path).target)
    noise = path.read_bytes().find(unweight.load_file(path)["noise"].tobytes())
    assert noise > 0
    data = bytearray(coded.read_bytes())
    at = data.find(path.read_bytes()[noise : noise + 700])
    data[at + 13] ^= 8
    coded.write_bytes(data)
    with unweight.safe_open(coded) as file, pytest.raises(unweight.IntegrityError, match="'noise'"):
        file.get_tensor("noise")


def test_a_bounded_file_gives_what_it_restores_to(tmp_path: Path) -> None:
    path = small_model(tmp_path / "model.safetensors")
    coded = unweight.compress(path, epsilon=0.01).target
    restored = unweight.decompress(coded, tmp_path / "restored").target
    assert_same(unweight.load_file(coded), unweight.load_file(restored))
    assert unweight.load_file(coded)["proj.weight"].tobytes() != (
        unweight.load_file(path)["proj.weight"].tobytes()
    )


def test_use_after_close(coded: Path) -> None:
    file = unweight.safe_open(coded)
    kept = file.get_tensor("a.weight f4")
    file.close()
    file.close()
    with pytest.raises(unweight.UsageError, match="is closed"):
        file.get_tensor("a.weight f4")
    assert kept.any()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors under /proc")
def test_no_file_stays_open(coded: Path, plain: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no container")
    gc.collect()
    before = descriptors()
    for path in (coded, plain):
        unweight.safe_open(path).get_tensor("a.weight f4")  # never closed
        with unweight.safe_open(path):
            pass
    with pytest.raises(unweight.FormatError):
        unweight.safe_open(tmp_path / "text")
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"framework": "pt"}, "framework must be one of np, numpy, not 'pt'"),
        ({"device": "cuda"}, "device must be cpu for arrays of NumPy, not 'cuda'"),
        ({"threads": -1}, "threads must be 0 to 256, not -1"),
    ],
)
def test_arguments_that_make_no_sense(coded: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(unweight.UsageError) as refusal:
        unweight.safe_open(coded, **arguments)
    assert str(refusal.value) == words


def test_tensors_and_files_that_are_not_there(coded: Path, tmp_path: Path) -> None:
    with unweight.safe_open(coded) as file:
        for call in (file.get_tensor, file.get_shape, file.get_dtype):
            with pytest.raises(unweight.UsageError, match="no tensor 'nothing'"):
                call("nothing")
    with pytest.raises(unweight.ResourceError, match="cannot be read"):
        unweight.safe_open(tmp_path / "missing")
    with pytest.raises(unweight.FormatError, match="not a regular file"):
        unweight.load_file(tmp_path)
