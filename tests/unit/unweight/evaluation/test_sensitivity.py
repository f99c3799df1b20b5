"""Sensitivity predicts what noise on a tensor really costs, and how often a tensor is used."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.evaluation import (
    EVALUATION_TEXT,
    TINY,
    load_model,
    needs_extra,
    poisoned,
    variant,
    weights_of,
)
from unweight.evaluation.extra import require_extra
from unweight.evaluation.measure.perplexity import compare
from unweight.evaluation.model.language_model import LanguageModel, replaced
from unweight.evaluation.model.token_windows import TokenWindows, cut
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.evaluation.sensitivity.fisher import TensorSensitivity, sensitivities
from unweight.evaluation.text import read_text
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import QualityGateError

pytestmark = needs_extra
QUIET = NoProgress()
NOISE = 0.1  # of the spread of a tensor

# One of each kind; the embedding is the output layer, too.
NOISY = (
    "model.embed_tokens.weight",
    "model.layers.2.self_attn.q_proj.weight",
    "model.layers.2.self_attn.v_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.2.mlp.down_proj.weight",
)


@pytest.fixture(scope="module")
def windows() -> TokenWindows:
    require_extra()
    return cut(read_text(EVALUATION_TEXT), load_tokenizer(TINY), 256, 8)


@pytest.fixture(scope="module")
def tiny(windows: TokenWindows) -> LanguageModel:
    return load_model(TINY)


@pytest.fixture(scope="module")
def found(tiny: LanguageModel, windows: TokenWindows) -> dict[str, TensorSensitivity]:
    return {tensor.name: tensor for tensor in sensitivities(tiny, windows, QUIET)}


def test_every_tensor_of_the_file_has_its_row(found: dict[str, TensorSensitivity]) -> None:
    weights = weights_of(TINY / "model.safetensors")
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: array.shape for name, array in weights.items()
    }
    assert all(tensor.mean_squared_gradient > 0 for tensor in found.values())


@pytest.mark.parametrize("name", NOISY)
def test_it_predicts_the_divergence(
    name: str, found: dict[str, TensorSensitivity], tiny: LanguageModel, windows: TokenWindows
) -> None:
    weights = weights_of(TINY / "model.safetensors")[name]
    spread = NOISE * float(weights.std())
    noise = np.random.default_rng(3).standard_normal(weights.shape, np.float32)
    original = load_model(TINY)
    with replaced(tiny, {name: weights + np.float32(spread) * noise}):
        divergence = compare(original, tiny, windows, QUIET).kl_divergence.value
    tensor = found[name]
    predicted = tensor.parameters * tensor.mean_squared_gradient * spread**2 / 2
    assert divergence == pytest.approx(predicted, rel=0.4)


def test_it_is_the_same_every_time_and_leaves_nothing_behind(
    tiny: LanguageModel, windows: TokenWindows
) -> None:
    few = replace(windows, ids=windows.ids[:2])
    assert sensitivities(tiny, few, QUIET) == sensitivities(tiny, few, QUIET)
    assert all(p.grad is None and not p.requires_grad for p in tiny.module.parameters())


def test_gradients_that_are_no_numbers(windows: TokenWindows, tmp_path: Path) -> None:
    model = load_model(variant(tmp_path / "poisoned", poisoned))
    with pytest.raises(QualityGateError, match="not finite"):
        sensitivities(model, replace(windows, ids=windows.ids[:1]), QUIET)
