"""Writes the tables of specs/blocks.md anew, from the layouts in the code.

usage: python scripts/block_table.py
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from unweight.containers.gguf.ggml_types import type_id_of
from unweight_codecs.layouts.blocks import BitRange, Field, fields_of
from unweight_codecs.layouts.contexts import PREDICTED, LowBits, Predictor, ZeroPoint
from unweight_codecs.tensor_spec import BLOCK_DTYPES, DType

SPECIFICATION = Path(__file__).resolve().parent.parent / "codecs/unweight_codecs/specs/blocks.md"
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


def _fields(dtype: DType) -> tuple[Field, ...]:
    return fields_of(dtype.name, dtype.block_bytes)


def _types() -> Iterator[str]:
    yield "| type | id | values | bytes | fields |\n|---|---|---|---|---|\n"
    for name, dtype in BLOCK_DTYPES.items():
        sizes = f"{type_id_of(name)} | {dtype.block_elements} | {dtype.block_bytes}"
        yield f"| {name} | {sizes} | `{' '.join(map(field_text, _fields(dtype)))}` |\n"


def _pieces() -> Iterator[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for name, dtype in BLOCK_DTYPES.items():
        for field in _fields(dtype):
            if field.bit_ranges:
                values = "`, `".join(
                    "+".join(map(_bit_range, ranges)) for ranges in field.bit_ranges
                )
                found.setdefault((field.name, f"`{values}`"), []).append(name)
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


if __name__ == "__main__":
    SPECIFICATION.write_text(
        with_tables(SPECIFICATION.read_text(encoding="utf-8")), encoding="utf-8"
    )
