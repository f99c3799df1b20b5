"""CDF histogram grid with an error bound: words become levels, and only the level is coded."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.bounded.chunks import Step, chunk_of, encode_chunk
from unweight_codecs.bounded.float_words import FLOATS
from unweight_codecs.bounded.level_tables import TABLES
from unweight_codecs.bounded.levels import MAX_LEVEL, dequantise
from unweight_codecs.codec import Mode, Stage, TensorView, check_setting
from unweight_codecs.entropy import frequencies
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import LevelForm, padded
from unweight_codecs.model import TensorModel
from unweight_codecs.span import Span

MAX_TABLES = 64
AUTO = "auto"
SPACINGS = ("uniform", *TABLES, AUTO)
_EQUAL, _TABLE = 0, 1
_SECTION = struct.Struct("<BBB")
_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class LevelGrid(Stage):
    """Chooses levels: equally spaced, at equal steps of the CDF, or Lloyd-Max.

    A table of levels has at most 254. Where these do not keep the error bound of a tensor, its
    levels are equally spaced, even if a table was asked for.

    Attributes:
        spacing: ``"uniform"``, ``"cdf"``, ``"lloyd"``, or ``"auto"`` for the smallest result.
        tables: Most frequency tables; each chunk is coded with one of them.
    """

    spacing: str = AUTO
    tables: int = 8

    name: ClassVar[str] = "level_grid"
    slot: ClassVar[str] = "grid"
    mode: ClassVar[Mode | None] = "bounded"

    def __post_init__(self) -> None:
        if self.spacing not in (AUTO, *SPACINGS):
            names = ", ".join((AUTO, *SPACINGS))
            raise UsageError(f"stage {self.label()}: spacing must be one of {names}")
        check_setting(self, "tables", self.tables, 1, MAX_TABLES)

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Say which grids to try; the error bound decides the steps, and the sizes the grid."""
        settings = model.on_levels.settings
        settings.spacing, settings.tables = self.spacing, self.tables

    def write(self, model: TensorModel) -> bytes:
        """Write u8 low bits, u8 limit, u8 whether a table of i32 levels follows, then tables."""
        form = model.on_levels.form
        parts = [_SECTION.pack(form.low_bits, form.limit, _EQUAL if form.table is None else _TABLE)]
        if form.table is not None:
            parts.append(form.table.astype("<i4").tobytes())
        tables = model.tables["symbol"]
        return b"".join([*parts, struct.pack("<B", len(tables)), frequencies.serialise(tables)])

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore grid and tables."""
        if model.spec.dtype not in FLOATS:
            raise IntegrityError(f"a tensor of {model.spec.dtype} cannot lie on a grid of levels")
        if len(section) <= _SECTION.size:
            raise IntegrityError("the grid section is cut short")
        low_bits, limit, kind = _SECTION.unpack_from(section)
        at, table = _SECTION.size, None
        if low_bits > 8 or not 1 <= limit <= 255 or kind > _TABLE or (kind and low_bits):
            raise IntegrityError("the grid section has an impossible grid")
        if kind == _TABLE:
            if len(section) < at + 4 * limit:
                raise IntegrityError("the grid section is cut short")
            table = np.frombuffer(section, "<i4", limit, at).astype(np.int32)
            at += 4 * limit
            if np.any(np.abs(table.astype(np.int64)) > MAX_LEVEL):
                raise IntegrityError("the grid section has an impossible level")
        if at >= len(section):
            raise IntegrityError("the grid section is cut short")
        number = section[at]
        model.tables["symbol"], at = frequencies.parse(section, at + 1, number)
        if at != len(section):
            raise IntegrityError("the grid section has a wrong size")
        model.on_levels.form = LevelForm(low_bits, limit, table)

    def encode(self, span: Span, model: TensorModel) -> None:
        """``words`` → ``symbol``, ``low`` and ``escape``."""
        bounded, size = model.on_levels, model.layout.word_bytes
        sizes = (
            bounded.steps if bounded.settings.step_sizes is None else bounded.settings.step_sizes
        )
        symbols = buffers.empty(padded(span.count))
        low, escapes = [], []
        for number, where in _chunks(span, model):
            prediction = None if span.prediction is None else span.prediction[where]
            words = span.words[where.start * size : where.stop * size]
            chunk = chunk_of(words, number, model, prediction)
            coded = encode_chunk(chunk, Step(sizes[number], bounded.steps[number]), bounded.form)
            symbols[where] = coded.symbols
            low.append(coded.low)
            escapes.append(coded.escapes)
        span.streams["symbol"] = symbols
        if bounded.form.low_bits:
            span.streams["low"] = np.concatenate(low)
        span.streams["escape"] = np.concatenate(escapes)
        span.escape_counts = np.array([part.size // size for part in escapes], np.uint64)

    def decode(self, span: Span, model: TensorModel) -> None:
        """Undo ``encode``, as far as the levels allow."""
        bounded, size, used = model.on_levels, model.layout.word_bytes, 0
        symbols, escapes = span.streams.pop("symbol"), span.streams.pop("escape")
        low = span.streams.pop("low", _NO_BYTES)
        for number, where in _chunks(span, model):
            part = symbols[where]
            escaped = int(np.count_nonzero(part >= bounded.form.limit)) * size
            dequantise(
                part,
                low[where],
                escapes[used : used + escaped],
                bounded.steps[number],
                bounded.form,
                model.spec.dtype,
                None if span.prediction is None else span.prediction[where],
                span.words[where.start * size : where.stop * size],
            )
            used += escaped


def _chunks(span: Span, model: TensorModel) -> Iterator[tuple[int, slice]]:
    """Yield the number of every chunk of a span, and which of the span's words it has."""
    first = span.first_word // model.chunk_words
    for number, at in enumerate(range(0, span.count, model.chunk_words), first):
        yield number, slice(at, min(at + model.chunk_words, span.count))
