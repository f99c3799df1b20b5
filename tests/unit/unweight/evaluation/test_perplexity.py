"""Perplexity of real models: known numbers, and the definition computed once more in NumPy."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.evaluation import (
    EVALUATION_TEXT,
    REAL,
    TINY,
    load_model,
    needs_extra,
    noisy,
    poisoned,
    scrambled,
    variant,
    weights_of,
)
from unweight.evaluation.measure import estimates
from unweight.evaluation.measure.perplexity import compare, measure
from unweight.evaluation.model.language_model import LanguageModel, replaced
from unweight.evaluation.model.token_windows import TokenWindows, cut
from unweight.evaluation.model.tokenizer import Tokenizer, load_tokenizer
from unweight.evaluation.text import Text, read_text
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import FormatError, UsageError

pytestmark = needs_extra
QUIET = NoProgress()


@pytest.fixture(scope="module")
def tiny() -> LanguageModel:
    return load_model(TINY)


@pytest.fixture(scope="module")
def tokenizer(tiny: LanguageModel) -> Tokenizer:
    return load_tokenizer(TINY)


@pytest.fixture(scope="module")
def few(tokenizer: Tokenizer) -> TokenWindows:
    return cut(read_text(EVALUATION_TEXT), tokenizer, 128, 3)


def plain_log_probabilities(model: LanguageModel, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log-probabilities at every position of one window, in float64."""
    import torch

    with torch.no_grad():
        logits = model.module(torch.from_numpy(ids)[None]).logits[0].double().numpy()
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def test_the_known_perplexity_of_the_fixture(tiny: LanguageModel, tokenizer: Tokenizer) -> None:
    windows = cut(read_text(EVALUATION_TEXT), tokenizer, 512)
    assert (windows.text_tokens, windows.ids.shape) == (47_247, (92, 512))
    assert windows.scored_tokens == 23_460
    losses = measure(tiny, windows, QUIET)
    assert estimates.perplexity(losses).value == pytest.approx(36.6884, abs=2e-3)


def test_the_definition_in_numpy(tiny: LanguageModel, tokenizer: Tokenizer) -> None:
    context = 128
    tokens = np.array(tokenizer(EVALUATION_TEXT.read_text(encoding="utf-8"))["input_ids"])
    losses = []
    for start in (0, context, 2 * context):
        window = tokens[start : start + context].copy()
        window[0] = tokenizer.bos_token_id
        table = plain_log_probabilities(tiny, window)
        losses += [-table[at, window[at + 1]] for at in range(context // 2, context - 1)]
    few = cut(read_text(EVALUATION_TEXT), tokenizer, context, 3)
    found = measure(tiny, few, QUIET)
    assert found.reshape(-1) == pytest.approx(losses, abs=1e-4)
    assert estimates.perplexity(found).value == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)


def test_two_models_in_numpy(tiny: LanguageModel, few: TokenWindows) -> None:
    weights = noisy(weights_of(TINY / "model.safetensors"))
    original = [plain_log_probabilities(tiny, ids)[64:-1] for ids in few.ids]
    first, second = load_model(TINY), tiny
    with replaced(second, weights):
        candidate = [plain_log_probabilities(second, ids)[64:-1] for ids in few.ids]
        found = compare(first, second, few, QUIET)
    before, after = np.concatenate(original), np.concatenate(candidate)
    divergences = (np.exp(before) * (before - after)).sum(-1)
    assert found.kl_divergence.value == pytest.approx(divergences.mean(), rel=1e-3)
    assert found.same_top.value == pytest.approx((before.argmax(-1) == after.argmax(-1)).mean())
    assert found.difference.value == pytest.approx(found.candidate.value - found.original.value)
    assert found.difference.value > 0
    assert 0 < found.kl_divergence.value < 1


def test_replaced_weights_come_back(tiny: LanguageModel, few: TokenWindows) -> None:
    before = measure(tiny, few, QUIET)
    with replaced(tiny, noisy(weights_of(TINY / "model.safetensors"))):
        assert not np.array_equal(measure(tiny, few, QUIET), before)
    assert np.array_equal(measure(tiny, few, QUIET), before)
    with (
        pytest.raises(UsageError, match="no parameter 'nothing'"),
        replaced(tiny, {"nothing": np.zeros(3, np.float32)}),
    ):
        pass
    with (
        pytest.raises(UsageError, match="has shape"),
        replaced(tiny, {"model.norm.weight": np.zeros(3, np.float32)}),
    ):
        pass


def test_a_model_and_itself(tiny: LanguageModel, few: TokenWindows) -> None:
    found = compare(tiny, tiny, few, QUIET)
    assert (found.difference.value, found.kl_divergence.value) == (0.0, 0.0)
    assert found.same_top.value == 1.0


def test_scrambled_weights_are_worse_than_guessing(
    tiny: LanguageModel, few: TokenWindows, tmp_path: Path
) -> None:
    model = load_model(variant(tmp_path / "scrambled", scrambled))
    found = compare(tiny, model, few, QUIET)
    assert found.candidate.value > 2 * model.vocabulary
    assert found.same_top.value < 0.05


def test_one_weight_that_is_no_number(
    tiny: LanguageModel, few: TokenWindows, tmp_path: Path
) -> None:
    model = load_model(variant(tmp_path / "poisoned", poisoned))
    found = compare(tiny, model, few, QUIET)
    assert math.isnan(found.candidate.value)
    assert found.original.is_finite


def test_a_window_longer_than_the_model(tiny: LanguageModel, tokenizer: Tokenizer) -> None:
    windows = cut(read_text(EVALUATION_TEXT), tokenizer, 513, 1)
    with pytest.raises(UsageError, match="at most 512 tokens"):
        measure(tiny, windows, QUIET)


def test_a_text_that_spells_special_tokens(tokenizer: Tokenizer) -> None:
    windows = cut(Text("odd", "<s> and </s> " * 40), tokenizer, 64)
    assert np.count_nonzero(windows.ids == tokenizer.bos_token_id) == len(windows.ids)


@pytest.mark.parametrize(
    ("name", "words"),
    [("model.layers.3.mlp.up_proj.weight", "lacks"), ("", "has more than")],
)
def test_tensors_that_do_not_fit_the_configuration(name: str, words: str, tmp_path: Path) -> None:
    def change(weights: dict[str, Any]) -> dict[str, Any]:
        changed = weights | {"model.layers.0.mlp.up_proj.weight_scale": np.ones(3, np.float32)}
        return {key: weights[key] for key in weights if key != name} if name else changed

    with pytest.raises(FormatError, match=words):
        load_model(variant(tmp_path / "model", change))


STORIES = {
    "hf-f32": "hf-F32",
    "hf-bf16-sharded": "hf-BF16",
    "hf-f16": "hf-F16",
    "gguf/stories260K-F32.gguf": "gguf-F32",
    "gguf/stories260K-Q8_0.gguf": "gguf-Q8_0",
    "gguf/stories260K-Q4_0.gguf": "gguf-Q4_0",
}


@pytest.mark.skipif(not REAL.is_dir(), reason="the real models beside the checkout are not there")
@pytest.mark.parametrize("name", STORIES)
def test_known_perplexities_of_a_story_teller(name: str) -> None:
    model = load_model(REAL / name)
    known = json.loads((REAL / "perplexity.json").read_text(encoding="utf-8"))
    sequences = json.loads((REAL / "eval.json").read_text(encoding="utf-8"))["eval_sequences"]
    # Here every token of a sequence is scored, not the second half.
    losses = []
    for sequence in sequences:
        ids = np.array(sequence)
        table = model.log_probabilities(ids, 0).numpy()
        losses += list(-table[np.arange(len(ids) - 1), ids[1:]])
    assert math.exp(np.mean(losses)) == pytest.approx(known[STORIES[name]], rel=2e-5)
