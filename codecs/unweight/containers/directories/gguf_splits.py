"""GGUF models in several files: ``NAME-00001-of-00003.gguf`` and so on are one model."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from unweight.containers.base import FileSource
from unweight.containers.gguf.header import parse_header
from unweight.containers.gguf.values import integer_value
from unweight.containers.registry import read_index
from unweight_codecs.errors import FormatError, quoted

NUMBER_KEY: Final = b"split.no"  # counts from 0, names count from 1
COUNT_KEY: Final = b"split.count"

_PART: Final = re.compile(r"(.*-)(\d{5})(-of-(\d{5})\.gguf)", re.IGNORECASE | re.DOTALL)


def check_splits(root: Path, models: Iterable[PurePosixPath]) -> None:
    """Check that every model of several parts has all of them, and that their keys agree.

    ``models`` are relative to ``root``. Raises FormatError that names the missing or wrong file.
    """
    sets: dict[tuple[str, str], dict[int, PurePosixPath]] = {}
    for file in models:
        part = _PART.fullmatch(str(file))
        if part and 1 <= int(part[2]) <= int(part[4]):
            sets.setdefault((part[1], part[3]), {})[int(part[2])] = file
    for (start, end), parts in sets.items():
        count = int(end[4:9])  # of "-of-00003.gguf"
        missing = next((number for number in range(1, count + 1) if number not in parts), None)
        if missing:
            raise FormatError(
                f"{root / f'{start}{missing:05}{end}'}: is missing, part {missing} of {count}",
                hint="download it as well, or compress the parts one by one",
            )
        for number, file in parts.items():
            _check_part(root / file, {NUMBER_KEY: number - 1, COUNT_KEY: count})


def _check_part(path: Path, expected: dict[bytes, int]) -> None:
    with FileSource(path) as source:
        index = read_index(source)
    if index.container != "gguf":
        return
    for key in parse_header(index.header).keys:
        value = integer_value(index.header, key)
        if value != expected.get(key.name, value):
            raise FormatError(
                f"{path}: key {quoted(key.name.decode())} is {value}, by the name of the file it "
                f"must be {expected[key.name]}",
                hint="the parts are of different models, or were renamed: download them together",
            )
