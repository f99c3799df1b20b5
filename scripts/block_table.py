"""Writes the tables of block types anew, in specs/blocks.md and in the decoder of specs/FORMAT.md.

usage: python scripts/block_table.py
"""

import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from unweight_codecs.block_types import BLOCK_TYPES, BitRange, BlockType, Field
from unweight_codecs.layouts.contexts import PREDICTED, LowBits, Predictor, ZeroPoint

SPECIFICATION = Path(__file__).resolve().parent.parent / "codecs/unweight_codecs/specs/blocks.md"
DECODER = SPECIFICATION.with_name("FORMAT.md")
WIDTH = 100  # of a line of the decoder
TABLES = ("types", "pieces", "predicted")  # between the markers ``<!-- NAME:begin -->`` and end


def field_text(field: Field) -> str:
    """Return name, bits and place of a field, e.g. ``q:4@2-17``."""
    return f"{field.name}:{field.bits}@{'pieces' if field.bit_ranges else _runs(field.bytes)}"


def _runs(numbers: tuple[int, ...]) -> str:
    """Return runs of neighbours joined by ``+``, or one run with its step."""
    steps = {b - a for a, b in pairwise(numbers)}
    if len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}/{steps.pop()}"
    starts = [k for k in range(len(numbers)) if not k or numbers[k] != numbers[k - 1] + 1]
    runs = [numbers[a:b] for a, b in pairwise([*starts, len(numbers)])]
    return "+".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _fields_text(block: BlockType) -> str:
    return " ".join(map(field_text, block.fields))


def _types() -> Iterator[str]:
    yield "| type | id | values | bytes | fields |\n|---|---|---|---|---|\n"
    for block in BLOCK_TYPES:
        sizes = f"{block.ggml_id} | {block.elements} | {block.bytes}"
        yield f"| {block.name} | {sizes} | `{_fields_text(block)}` |\n"


def _values(field: Field) -> list[str]:
    """Return where the bits of each value lie, e.g. ``12.0-3+4.6-7``."""
    return ["+".join(map(_bit_range, ranges)) for ranges in field.bit_ranges]


def _pieces() -> Iterator[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for block in BLOCK_TYPES:
        for field in block.fields:
            if field.bit_ranges:
                values = "`, `".join(_values(field))
                found.setdefault((field.name, f"`{values}`"), []).append(block.name)
    yield "| types | field | values 0, 1, … |\n|---|---|---|\n"
    for (field_name, values), names in found.items():
        yield f"| {', '.join(names)} | `{field_name}` | {values} |\n"


def _bit_range(bits: BitRange) -> str:
    return f"{bits.byte}.{bits.shift}-{bits.shift + bits.width - 1}"


def _predicted() -> Iterator[str]:
    yield "| type | stream | kind | of | L |\n|---|---|---|---|---|\n"
    for name, streams in PREDICTED.items():
        for stream, predictor in streams.items():
            yield f"| {name} | `{stream}` | {' | '.join(predictor_cells(predictor))} |\n"


def predictor_cells(predictor: Predictor) -> tuple[str, str, str]:
    """Return what kind of predictor it is, the fields or stream it looks at, and its levels."""
    match predictor:
        case ZeroPoint(scale, minimum, levels):
            return "zero point", f"`{scale}`, `{minimum}`", str(levels)
        case LowBits(stream):
            return "low bits", f"`{stream}`", ""
        case _:
            raise TypeError(f"{SPECIFICATION.name} does not describe {predictor}")


def with_tables(document: str) -> str:
    """Return the page with fresh tables between its markers."""
    for name, rows in zip(TABLES, (_types(), _pieces(), _predicted()), strict=True):
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
        before, rest = document.split(begin)
        document = before + begin + "".join(rows) + end + rest.split(end)[1]
    return document


def _printed_blocks() -> Iterator[str]:
    for block in BLOCK_TYPES:
        cells = (str(block.ggml_id), str(block.elements), str(block.bytes))
        text = _fields_text(block)
        row = f'    "{block.name}": ({", ".join(cells)}, "{text}"),\n'
        if len(row) <= WIDTH + 1:
            yield row
            continue
        yield f'    "{block.name}": (\n'
        yield from (f"        {cell},\n" for cell in cells)
        *lines, last = _literals(text, WIDTH - 1)
        yield from (f"        {line}\n" for line in lines)
        yield f"        {last},\n    ),\n"


def _printed_pieces() -> Iterator[str]:
    for block in BLOCK_TYPES:
        for field in block.fields:
            if not field.bit_ranges:
                continue
            key, text = f"{block.name} {field.name}", " ".join(_values(field))
            row = f'    "{key}": "{text}",\n'
            if len(row) <= WIDTH + 1:
                yield row
                continue
            yield f'    "{key}": (\n'
            yield from (f"        {line}\n" for line in _literals(text, WIDTH))
            yield "    ),\n"


def _literals(text: str, width: int) -> list[str]:
    """Return string literals that together are ``text``, for an indentation of 8."""
    lines = textwrap.wrap(text, width - 8 - 3)  # less the quotes and the space between two lines
    return [*(f'"{line} "' for line in lines[:-1]), f'"{lines[-1]}"']


def with_printed_tables(document: str) -> str:
    """Return the page with fresh tables in its decoder."""
    for name, rows in (("BLOCKS", _printed_blocks()), ("PIECES", _printed_pieces())):
        before, rest = document.split(f"\n{name} = {{", 1)
        comment, rest = rest.split("\n", 1)
        after = rest.split("\n}\n", 1)[1]
        document = f"{before}\n{name} = {{{comment}\n{''.join(rows)}}}\n{after}"
    return document


if __name__ == "__main__":
    for page, renewed in ((SPECIFICATION, with_tables), (DECODER, with_printed_tables)):
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
