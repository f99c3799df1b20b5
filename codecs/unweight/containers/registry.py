"""The containers that are read, a row each: how to tell one, how to read it, what hosts it.

Nothing else names containers: what is read, which files of a directory are models, and what
messages and file names say follows from the rows here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unweight.containers import safetensors
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.foreign import HEAD_BYTES, foreign_file
from unweight.containers.gguf import header as gguf_header
from unweight.containers.gguf import reader as gguf
from unweight_codecs.errors import FormatError, quoted


@dataclass(frozen=True, slots=True)
class Container:
    """A file format that holds named tensors.

    Attributes:
        name: What manifests and reports call it.
        title: What messages call it.
        suffix: Of its files, with the dot; files of a directory are told by it.
        starts: Whether the first ``HEAD_BYTES`` bytes of a file, or as many as there are, are those
            of this format. At most one row may say so of any file.
        read_index: Reads and checks everything but the tensor data of a file.
        parse_index: The same from the header alone and the size of the file.
        host: Name of the container that an Unweight file of such a source is: see ``archive.host``.
    """

    name: str
    title: str
    suffix: str
    starts: Callable[[bytes], bool]
    read_index: Callable[[FileSource], ContainerIndex]
    parse_index: Callable[[bytes, int], ContainerIndex]
    host: str


_ROWS: Final = (
    Container(
        "safetensors",
        safetensors.TITLE,
        ".safetensors",
        safetensors.starts_like_safetensors,
        safetensors.read_index,
        safetensors.parse_index,
        host="safetensors",
    ),
    # Its magic, read as the length of a safetensors header, exceeds the limit: no file is both.
    Container(
        "gguf",
        gguf_header.TITLE,
        ".gguf",
        gguf.starts_like_gguf,
        gguf.read_index,
        gguf.parse_index,
        host="gguf",
    ),
)
CONTAINERS: Final[dict[str, Container]] = {row.name: row for row in _ROWS}


def model_suffixes() -> tuple[str, ...]:
    """Return the suffixes, in lower case, that model files have."""
    return tuple(row.suffix for row in CONTAINERS.values())


def container_named(name: object) -> Container:
    """Return the container called ``name``; raises FormatError when there is none."""
    found = CONTAINERS.get(name) if isinstance(name, str) else None
    if found is None:
        raise FormatError(f"unknown container {quoted(name)}", hint="upgrade unweight")
    return found


def sniff(source: FileSource) -> Container:
    """Return the container that a file is by its first bytes, never by its name.

    Raises FormatError, saying what the file looks like, when it is none.
    """
    head = source.read_at(0, min(source.size, HEAD_BYTES))
    for row in CONTAINERS.values():
        if row.starts(head):
            return row
    error = foreign_file(head, [row.title for row in CONTAINERS.values()])
    raise FormatError(f"{source.path}: {error.message}", hint=error.hint)


def hosts_others(path: Path) -> bool:
    """Whether a file is of a container that hosts Unweight files of other containers, too."""
    with FileSource(path) as source:
        name = sniff(source).name
    return any(row.host == name != row.name for row in CONTAINERS.values())


def read_index(source: FileSource) -> ContainerIndex:
    """Read the index of a container of any supported kind; raises FormatError."""
    return sniff(source).read_index(source)
