"""Files within an error bound that are damaged or lie, and originals that are others."""

from pathlib import Path

import numpy as np
import pytest

from tests.support import bounded
from tests.support.bounded_files import (
    EPSILON,
    QUIET,
    SHAPE,
    matrix,
    packed,
    restored,
    tensors,
    verified,
    write_source,
)
from tests.support.models import Tensor, write_model
from tests.support.surgery import Archive, Head
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight_codecs.errors import IntegrityError, QualityGateError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def coded(source: Path) -> Path:
    packed(source, source.with_name("coded"))
    return source.with_name("coded")


def test_against_a_file_with_another_weight(source: Path, coded: Path, tmp_path: Path) -> None:
    """An error above the bound is a failed gate; anything else that differs is damage."""
    original = source.read_bytes()
    start = len(original) - sum(len(tensor.data) for tensor in tensors().values())
    other = tmp_path / "other"
    other.write_bytes(original[: start + 1001] + b"\x44" + original[start + 1002 :])  # 784.0
    with pytest.raises(
        QualityGateError, match=r"'BF16' has the relative error .* allowed is 0\.01"
    ):
        verified(coded, other)
    at = start + sum(len(tensors()[name].data) for name in bounded.FLOATS) + 100
    other.write_bytes(original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :])
    with pytest.raises(
        IntegrityError, match=r"differs .* in tensor 'vector', first at its byte 100"
    ):
        verified(coded, other)


def test_against_a_file_of_other_weights(coded: Path, tmp_path: Path) -> None:
    others = tensors()
    others["F16"] = Tensor("F16", SHAPE, matrix("F16", 77).tobytes())
    other = write_model(tmp_path / "other", others, {"format": "pt"})
    with pytest.raises((QualityGateError, IntegrityError)) as failure:
        verified(coded, other)
    assert "'F16'" in failure.value.message


def test_against_a_file_with_another_nan(source: Path, coded: Path, tmp_path: Path) -> None:
    changed = tensors()
    words = np.frombuffer(changed["F32"].data, "<u4").copy()
    words[~np.isfinite(words.view("<f4"))] = 0x7FC00002
    changed["F32"] = Tensor("F32", SHAPE, words.tobytes())
    other = write_model(tmp_path / "other", changed, {"format": "pt"})
    with pytest.raises(IntegrityError) as failure:
        verified(coded, other)
    assert str(coded) in failure.value.message
    assert "'F32'" in failure.value.message


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7, 0.9, 0.999])
def test_a_flipped_bit_is_damage(source: Path, coded: Path, tmp_path: Path, place: float) -> None:
    data = bytearray(coded.read_bytes())
    data[int(place * len(data))] ^= 4
    (tmp_path / "damaged").write_bytes(data)
    for against in (None, source):
        with pytest.raises(IntegrityError):
            verified(tmp_path / "damaged", against)
    with pytest.raises(IntegrityError):
        decompress(tmp_path / "damaged", tmp_path / "back", threads=1, force=False, progress=QUIET)
    assert not (tmp_path / "back").exists()


def test_another_step_behind_right_checksums(coded: Path, tmp_path: Path) -> None:
    """The digest of the tensor is that of what it is decoded to."""
    archive = Archive.read(coded)
    head, chunks = Head.read(archive.payloads["F32"])
    steps = np.frombuffer(head.sections[3], "<f4") * np.float32(1.5)
    head.sections[3] = steps.tobytes()
    archive.payloads["F32"] = head.to_bytes() + chunks
    damaged = archive.write(tmp_path / "damaged")
    with pytest.raises(IntegrityError, match="'F32': wrong digest"):
        verified(damaged)


def test_another_digest_of_the_restored_file(coded: Path, tmp_path: Path) -> None:
    archive = Archive.read(coded)
    archive.manifest["source"]["restored_sha256"] = "0" * 64
    damaged = archive.write(tmp_path / "damaged")
    with pytest.raises(IntegrityError, match="another SHA-256"):
        verified(damaged)


def test_a_claimed_bound_is_measured(source: Path, coded: Path, tmp_path: Path) -> None:
    """A manifest may claim a smaller error than a file has; the original tells."""
    archive = Archive.read(coded)
    for entry in archive.manifest["tensors"].values():
        if "epsilon" in entry:
            entry |= {"epsilon": 0.001, "error": 0.0005}
    archive.manifest["epsilon"] = 0.001
    lying = archive.write(tmp_path / "lying")
    verified(lying)
    with pytest.raises(QualityGateError, match=r"allowed is 0\.001"):
        verified(lying, source)


def test_an_exact_tensor_that_names_a_bounded_pipeline(coded: Path, tmp_path: Path) -> None:
    archive = Archive.read(coded)
    entries = archive.manifest["tensors"]
    for name in ("vector", "integers", "double"):
        archive.manifest["tensors"] = entries | {
            name: entries[name] | {"pipeline": entries["BF16"]["pipeline"]}
        }
        lying = archive.write(tmp_path / "lying")
        with pytest.raises(IntegrityError, match="two modes"):
            verified(lying)


def test_a_bounded_file_that_calls_itself_lossless(coded: Path, tmp_path: Path) -> None:
    archive = Archive.read(coded)
    archive.manifest |= {"mode": "lossless", "features": []}
    del archive.manifest["epsilon"]
    archive.manifest["source"]["sha256"] = archive.manifest["source"].pop("restored_sha256")
    for entry in archive.manifest["tensors"].values():
        for key in ("epsilon", "error", "max_error"):
            entry.pop(key, None)
    with pytest.raises(IntegrityError, match="two modes"):
        verified(archive.write(tmp_path / "lying"))


def test_another_file_within_the_bound_is_not_the_original(tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.safetensors", {"w": tensors()["BF16"]})
    target, other = tmp_path / "coded.safetensors", tmp_path / "restored.safetensors"
    compress(source, target, CompressOptions(epsilon=EPSILON), QUIET)
    other.write_bytes(restored(target))
    with pytest.raises(IntegrityError, match="is not the file that was compressed"):
        verified(target, other)
