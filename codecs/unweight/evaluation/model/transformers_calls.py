"""What transformers and torch do, made silent, and their failures told in one line."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

from unweight_codecs.errors import FormatError, Parameter, Phrase, ResourceError, UnweightError

MAX_REASON: Final = 120
ON_PROCESSOR: Final = Phrase("try ", Parameter("device", "cpu"))


@contextmanager
def loading(path: Path, what: str, hint: str = "") -> Iterator[None]:
    """Run a block that lets transformers load the ``what`` (model, tokenizer) at ``path``.

    Nothing it prints is shown. Whatever it raises becomes a FormatError, except a full memory.
    """
    try:
        # It draws bars of its own, whatever its settings say.
        nowhere = io.StringIO()
        with redirect_stderr(nowhere), redirect_stdout(nowhere), memory_errors(what):
            yield
    except (UnweightError, MemoryError):
        raise
    except Exception as error:
        raise FormatError(
            f"{path}: transformers cannot load the {what}: {_reason(error)}", hint=hint
        ) from error


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Turn torch's ways to say that memory is full into a ResourceError about ``what``."""
    try:
        yield
    except RuntimeError as error:
        if "memory" not in str(error).lower():
            raise
        raise ResourceError(
            f"the {what} does not fit in memory: {_reason(error)}", hint=ON_PROCESSOR
        ) from error


def _reason(error: Exception) -> str:
    """Return the first sentence of what may be pages of advice."""
    text = " ".join(str(error).split()) or type(error).__name__
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= MAX_REASON else f"{sentence[:MAX_REASON]}…"
