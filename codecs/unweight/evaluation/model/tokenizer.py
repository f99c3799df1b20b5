"""The tokenizer of a model: loading it, encoding a text, and whether a text begins with BOS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from unweight.evaluation.model.transformers_calls import loading
from unweight_codecs.errors import FormatError, Parameter, Phrase

NO_TOKENIZER: Final = Phrase(
    Parameter("model"), " names a directory with config.json and a tokenizer"
)


class Tokenizer(Protocol):
    """What is used of the tokenizers of transformers, which have no one type."""

    bos_token: str | None
    bos_token_id: int | None
    unk_token_id: int | None

    def __call__(self, text: str, **options: bool) -> Mapping[str, list[int]]:
        """Encode a text; its tokens are under ``input_ids``."""


def load_tokenizer(source: Path) -> Tokenizer:
    """Return the tokenizer of a model directory or of a GGUF file.

    Raises FormatError when there is none that transformers can load.
    """
    from transformers import AutoTokenizer

    is_folder = source.is_dir()
    folder, options = (source, {}) if is_folder else (source.parent, {"gguf_file": source.name})
    with loading(source, "tokenizer", NO_TOKENIZER):
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **options
        )
        usable = bool(encode(tokenizer, "a text"))
    if not usable:
        raise FormatError(f"{source}: there is no tokenizer", hint=NO_TOKENIZER)
    return tokenizer


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the token ids of ``text`` with the special tokens that the tokenizer adds.

    Text that merely spells a special token is encoded as the letters it is made of.
    """
    # Without verbose=False transformers warns of every text longer than the model's context.
    encoded = tokenizer(text, add_special_tokens=True, split_special_tokens=True, verbose=False)
    return [int(token) for token in encoded["input_ids"]]


def bos_of(tokenizer: Tokenizer) -> int | None:
    """Return the BOS token that the tokenizer puts before a text, or None if it puts none."""
    bos = tokenizer.bos_token_id
    return int(bos) if bos is not None and encode(tokenizer, "a")[:1] == [bos] else None
