"""Tensors of odd values: whatever compress calls verified must come back, with every preset."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.models import Tensor, write_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.errors import IntegrityError
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.presets import PRESETS

QUIET = NoProgress()
SHAPE = (256, 384)
WIDTHS = {"BF16": (16, 7), "F16": (16, 10), "F32": (32, 23), "F64": (64, 52)}  # bits, mantissa


def odd_words(kind: str, dtype: str) -> NDArray[Any]:
    """Return a matrix whose words have a sign at random and are otherwise of one kind."""
    bits, mantissa = WIDTHS[dtype]
    rng = np.random.default_rng(5)
    word = np.dtype(f"<u{bits // 8}").type
    sign = rng.integers(0, 2, SHAPE).astype(word) << word(bits - 1)
    exponent_mask = (1 << (bits - 1 - mantissa)) - 1
    magnitude: Any = {
        "zero": 0,
        "one half": (exponent_mask // 2 - 1) << mantissa,
        "infinity": exponent_mask << mantissa,
        "nan": (exponent_mask << mantissa) + 1,
        "smallest": 1,
    }.get(kind)
    if magnitude is None:  # subnormal
        magnitude = rng.integers(0, 1 << mantissa, SHAPE)
    found: NDArray[Any] = sign | np.asarray(magnitude).astype(word)
    return found


@pytest.mark.parametrize("epsilon", [0.0, 0.01])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_what_is_called_verified_comes_back(
    dtype: str, preset: str, epsilon: float, tmp_path: Path
) -> None:
    kinds = ("zero", "one half", "infinity", "nan", "smallest", "subnormal")
    model = {kind: Tensor(dtype, SHAPE, odd_words(kind, dtype).tobytes()) for kind in kinds}
    source = write_model(tmp_path / "model.safetensors", model)
    coded, restored = tmp_path / "coded.safetensors", tmp_path / "restored.safetensors"
    compress(source, coded, CompressOptions(preset=preset, epsilon=epsilon), QUIET)
    verify(coded, source, threads=1, progress=QUIET)
    decompress(coded, restored, threads=1, force=False, progress=QUIET)
    if not epsilon:
        assert restored.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("stage", [HistogramGrid, ScaleClasses])
def test_a_head_that_no_reader_accepts_is_noticed_before_there_is_a_file(
    stage: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = np.random.default_rng(0).normal(0, 1, (64, 512)).astype("<f4")
    source = write_model(
        tmp_path / "model.safetensors", {"w": Tensor("F32", words.shape, words.tobytes())}
    )
    monkeypatch.setattr(stage, "write", lambda self, model: b"\7")
    with pytest.raises(IntegrityError, match="section"):
        compress(source, tmp_path / "coded.safetensors", CompressOptions(), QUIET)
    assert list(tmp_path.iterdir()) == [source]
