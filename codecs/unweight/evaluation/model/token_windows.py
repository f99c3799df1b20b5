"""A text as windows of tokens, cut the way llama.cpp's perplexity tool cuts it.

The whole text is tokenised once, special tokens added, and cut into windows that do not overlap;
what is left over at the end is dropped. Where the tokenizer puts a BOS token before a text, the
first token of every window is replaced by it. The second half of each window is scored: the
predictions at positions n/2 … n - 2 for the tokens one place further.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unweight.evaluation.model.tokenizer import Tokenizer, bos_of, encode
from unweight.evaluation.text import Text
from unweight_codecs.errors import Parameter, Phrase, UsageError

DEFAULT_CONTEXT: Final = 512  # as llama.cpp
MIN_WINDOWS: Final = 2
MAX_UNKNOWN: Final = 0.5  # of the tokens: beyond that a text says nothing about the model

TokenIds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """Windows of one text.

    Attributes:
        ids: Token ids, (windows, context).
        bos: The token at the start of each window that the tokenizer wants there; None if none.
        text_tokens: Number of tokens of the whole text.
        text: The text they are of.
    """

    ids: TokenIds
    bos: int | None
    text_tokens: int
    text: Text

    @property
    def context(self) -> int:
        """Tokens in a window."""
        return int(self.ids.shape[1])

    @property
    def first(self) -> int:
        """First position in a window whose prediction is scored."""
        return self.context // 2

    @property
    def targets(self) -> TokenIds:
        """The tokens that are scored, (windows, scored per window)."""
        return self.ids[:, self.first + 1 :]

    @property
    def scored_tokens(self) -> int:
        """Number of scored tokens of all windows."""
        return int(self.targets.size)

    @property
    def nbytes(self) -> int:
        """About how many bytes of text the windows cover."""
        return self.text.nbytes * int(self.ids.size) // self.text_tokens

    def step(self, number: int) -> int:
        """Return how many of the bytes are those of window ``number``."""
        count = len(self.ids)
        return self.nbytes * (number + 1) // count - self.nbytes * number // count


def cut(text: Text, tokenizer: Tokenizer, context: int, limit: int = 0) -> TokenWindows:
    """Tokenise ``text`` and cut it into windows of ``context`` tokens, at most ``limit`` if not 0.

    Raises UsageError when the text is too short, or mostly unknown to the tokenizer.
    """
    ids = np.asarray(encode(tokenizer, text.content), np.int64)
    _check_known(ids, tokenizer.unk_token_id, text)
    if len(ids) < MIN_WINDOWS * context:
        raise UsageError(
            _too_short(text, len(ids), context), hint=Phrase("give a longer ", Parameter("text"))
        )
    count = len(ids) // context
    windows = ids[: count * context].reshape(count, context).copy()
    if limit:
        windows = windows[:limit]
    bos = bos_of(tokenizer)
    if bos is not None:
        windows[:, 0] = bos
    return TokenWindows(windows, bos, len(ids), text)


def _check_known(ids: TokenIds, unknown: int | None, text: Text) -> None:
    share = float(np.mean(ids == unknown)) if unknown is not None and len(ids) else 0.0
    if share > MAX_UNKNOWN:
        raise UsageError(
            f"{text.name}: {share:.0%} of its tokens are unknown to the tokenizer",
            hint=Phrase("give a ", Parameter("text"), " in the language of the model"),
        )


def _too_short(text: Text, tokens: int, context: int) -> str:
    needed = MIN_WINDOWS * context
    characters = len(text.content)
    estimate = -(-characters * needed // max(tokens, 1))
    return (
        f"{text.name}: too short: {tokens:,} tokens ({characters:,} characters), but {MIN_WINDOWS} "
        f"windows of {context:,} need {needed:,} tokens (about {estimate:,} characters)"
    )
