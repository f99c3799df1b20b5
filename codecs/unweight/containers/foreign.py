"""Says what a file is that is not a model container, and how to get the model instead."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unweight_codecs.errors import FormatError

HEAD_BYTES = 64  # how much of a file's start `foreign_file` wants to see


@dataclass(frozen=True, slots=True)
class _Kind:
    start: re.Pattern[bytes]
    what: str
    hint: str


_SHORTEST_FILE = 8  # bytes: no container starts with fewer
_CONVERT = "load it with PyTorch and save it with safetensors.torch.save_file"
_KINDS = (
    _Kind(
        re.compile(rb"version https://git-lfs\."),
        "a Git LFS pointer, not the model itself",
        "run git lfs pull to fetch the model",
    ),
    _Kind(re.compile(rb"PK\x03\x04"), "a zip archive, probably a PyTorch checkpoint", _CONVERT),
    _Kind(
        re.compile(rb"\x80[\x02-\x05]"), "a Python pickle, probably a PyTorch checkpoint", _CONVERT
    ),
    _Kind(
        re.compile(rb"\s*<(!doctype|html|head|\?xml|!--)", re.IGNORECASE),
        "a web page, not a model",
        "the download got an error or sign-in page instead of the file: download it again",
    ),
    _Kind(
        re.compile(rb"\s*\{"),
        "JSON text, not a model",
        "give the model file, a model directory or a *.safetensors.index.json file",
    ),
    _Kind(
        re.compile(rb".{0,8}\xef\xbf\xbd", re.DOTALL),
        "binary data that was damaged by a text conversion",
        "copy or download the file again in binary mode",
    ),
)


def foreign_file(head: bytes, titles: Sequence[str]) -> FormatError:
    """Return the error for a file that starts with ``head`` and is no container known here.

    ``titles`` are those of the containers that it could have been. The message lacks the file's
    name, which the caller puts before it.
    """
    for kind in _KINDS:
        if kind.start.match(head):
            return FormatError(f"this is {kind.what}", hint=kind.hint)
    if len(head) < _SHORTEST_FILE:
        size = f"has only {len(head)} bytes" if head else "is empty"
        return FormatError(f"the file {size}", hint="download or copy it again")
    neither = "not a" if len(titles) == 1 else "neither a"
    kinds = " nor a ".join(titles)
    return FormatError(f"this is {neither} {kinds} file", hint=f"starts with {head[:8]!r}")
