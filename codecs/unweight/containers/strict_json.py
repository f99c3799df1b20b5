"""JSON as untrusted input: one meaning per document, or an error.

The standard library's parser is lenient where readers of different languages disagree (duplicate
keys, NaN, lone surrogates) and recurses as deep as the input says. Both are refused here.
"""

import json
import math
import re
from itertools import accumulate
from typing import Any, NoReturn

from unweight_codecs.errors import FormatError, quoted

MAX_DEPTH = 100  # below the limit of 128 that the parser of the reference library has
MAX_STRUCTURE = 4_000_000  # commas, brackets and braces: each may cost 100 bytes of objects

_MAX_INTEGER_DIGITS = 20  # characters of the longest 64-bit number
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # read as signed: +1 opens, -1 closes


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Parse ``data`` as one JSON object.

    Integers come back as ``int``, except those too long for 64 bits and ``-0``, which have no
    integer of their own and come back as ``float``. Raises FormatError, with ``what`` as the name
    of the document, for anything that is not exactly one well-formed object in UTF-8.
    """
    check_complexity(data, what)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise FormatError(f"{what} is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{what} is not valid JSON: {error.msg} at character {error.pos}"
        ) from None
    except FormatError as error:
        raise FormatError(f"{what} is not valid JSON: {error.message}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{what} is not a JSON object")
    if b"\\u" in data:
        _check_surrogates(value, what)
    return value


def check_complexity(data: bytes, what: str) -> None:
    """Raise FormatError when JSON nests too deep or has too many parts to be worth parsing."""
    # Each comma or bracket brings at most a key and a value: no need to look at more strings.
    rest, strings = _STRING.subn(b"", data, 2 * MAX_STRUCTURE + 1)
    structure = rest.translate(None, _NOT_STRUCTURE)
    if strings > 2 * MAX_STRUCTURE or len(structure) > MAX_STRUCTURE:
        raise FormatError(
            f"{what} is too complex: more than {MAX_STRUCTURE:,} commas, brackets and braces"
        )
    brackets = structure.translate(_STEPS, _NOT_BRACKETS)
    if max(accumulate(memoryview(brackets).cast("b")), default=0) > MAX_DEPTH:
        raise FormatError(f"{what} is not valid JSON: nested deeper than {MAX_DEPTH} levels")


def _check_surrogates(value: dict[str, Any], what: str) -> None:
    # Undecoded surrogates come only from escapes, so few documents pay for this second pass.
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(f"{what} is not valid JSON: lone surrogate in a string") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FormatError(f"duplicate key {quoted(key)}")
            seen.add(key)
    return members


def _integer(text: str) -> int | float:
    if text == "-0" or len(text) > _MAX_INTEGER_DIGITS:
        return _float(text)
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise FormatError(f"number {quoted(text)} is out of range")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise FormatError(f"{text} is not a JSON value")
