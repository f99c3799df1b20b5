"""Tells containers apart by their content and reads each with its own reader."""

from collections.abc import Callable
from typing import Final

from unweight.containers import safetensors
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.foreign import HEAD_BYTES, foreign_file
from unweight.containers.gguf import reader as gguf
from unweight_codecs.errors import FormatError

_GGUF_MAGIC: Final = b"GGUF"


def sniff(source: FileSource) -> str:
    """Return ``"safetensors"`` or ``"gguf"`` by the first bytes of the file, never by its name.

    Raises FormatError, saying what the file looks like, when it is neither.
    """
    head = source.read_at(0, min(source.size, HEAD_BYTES))
    # The magic, read as a safetensors header length, exceeds the limit: no file is both.
    if head.startswith(_GGUF_MAGIC):
        return "gguf"
    if safetensors.starts_like_safetensors(head):
        return "safetensors"
    error = foreign_file(head)
    raise FormatError(f"{source.path}: {error.message}", hint=error.hint)


def read_index(source: FileSource) -> ContainerIndex:
    """Read the index of a container of any supported kind; raises FormatError."""
    return _READERS[sniff(source)](source)


_READERS: Final[dict[str, Callable[[FileSource], ContainerIndex]]] = {
    "safetensors": safetensors.read_index,
    "gguf": gguf.read_index,
}
