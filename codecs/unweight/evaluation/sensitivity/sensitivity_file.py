"""The file that ``unweight profile`` writes, read back: every part of it is checked by name."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from unweight.containers.base import FileSource
from unweight.containers.strict_json import parse_object
from unweight.evaluation.sensitivity.allocation import ProfiledTensor
from unweight.units import shortened
from unweight_codecs.errors import FormatError

FORMAT: Final = "unweight.sensitivity"
VERSION: Final = 1
WRITTEN_BY: Final = "`unweight profile` writes a sensitivity file"
MAX_BYTES: Final = 1 << 26
MAX_SHOWN: Final = 80  # characters of a wrong value that a message repeats
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SensitivityFile:
    """What a sensitivity file says.

    Attributes:
        path: The file.
        models: SHA-256 of each file of weights that was profiled, by its name.
        tensors: The matrices; vectors are not coded with an error, so they have no share of it.
    """

    path: Path
    models: Mapping[str, str]
    tensors: tuple[ProfiledTensor, ...]


def read_sensitivity(path: Path) -> SensitivityFile:
    """Read a file that ``unweight profile`` wrote.

    Raises FormatError, saying which part of it should be what, when it is another file.
    """
    with FileSource(path) as file:
        if file.size > MAX_BYTES:
            raise FormatError(f"{path}: too large for a sensitivity file", hint=WRITTEN_BY)
        data = file.read_at(0, file.size)
    try:
        document = parse_object(data, "the document")
        _check_version(document)
        models = _take(document, "models", _DIGESTS)
        rows = [_tensor(row, k) for k, row in enumerate(_take(document, "tensors", _LIST))]
        _check_names(rows)
    except FormatError as error:
        raise FormatError(
            f"{path}: not a sensitivity file: {error.message}", hint=error.hint or WRITTEN_BY
        ) from None
    return SensitivityFile(path, models, tuple(row for row in rows if row is not None))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a value must be, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _is_digests(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_digest, value.values()))


_TEXT: Final = _Kind("text", lambda value: isinstance(value, str))
_LIST: Final = _Kind("a list", lambda value: isinstance(value, list))
_COUNT: Final = _Kind("a whole number from 0 up", _is_count)
_NUMBER: Final = _Kind("a number from 0 up", _is_number)
_SHAPE: Final = _Kind("a list of whole numbers", _is_shape)
_DIGESTS: Final = _Kind("an object of SHA-256 digests by file name", _is_digests)


def _take(owner: Mapping[str, Any], key: str, kind: _Kind, place: str = "") -> Any:  # noqa: ANN401
    if key not in owner:
        raise FormatError(f"{place}{key} is missing, which must be {kind.words}")
    value = owner[key]
    if not kind.accepts(value):
        raise FormatError(f"{place}{key} must be {kind.words}, not {_json(value)}")
    return value


def _json(value: object) -> str:
    """Return a value as the file spells it, shortened."""
    return shortened(json.dumps(value, ensure_ascii=False), MAX_SHOWN)


def _check_version(document: Mapping[str, Any]) -> None:
    name = _take(document, "format", _TEXT)
    if name != FORMAT:
        raise FormatError(f"format must be {_json(FORMAT)}, not {_json(name)}")
    version = _take(document, "version", _COUNT)
    if version != VERSION:
        raise FormatError(f"version must be {VERSION}, not {version}", hint="upgrade unweight")


def _tensor(row: object, number: int) -> ProfiledTensor | None:
    """Return a row of ``tensors``; None for a vector."""
    place = f"tensors[{number}]"
    if not isinstance(row, dict):
        raise FormatError(f"{place} must be an object, not {_json(row)}")
    place += "."
    shape = _take(row, "shape", _SHAPE, place)
    tensor = ProfiledTensor(
        _take(row, "name", _TEXT, place),
        _take(row, "parameters", _COUNT, place),
        float(_take(row, "mean_square", _NUMBER, place)),
        float(_take(row, "mean_squared_gradient", _NUMBER, place)),
    )
    if tensor.parameters != math.prod(shape):
        raise FormatError(
            f"{place}parameters must be {math.prod(shape)}, the product of its shape, "
            f"not {tensor.parameters}"
        )
    return tensor if len(shape) > 1 else None


def _check_names(rows: list[ProfiledTensor | None]) -> None:
    for name, times in Counter(row.name for row in rows if row is not None).items():
        if times > 1:
            raise FormatError(f"tensors has {_json(name)} more than once")
