"""The tensors of a batch: a record of each, its frequency tables and its parameters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.bounded.float_words import FLOATS
from unweight_codecs.kernels.operands import ALPHABET, Bytes, Frequencies
from unweight_codecs.model import BoundedModel, TensorModel
from unweight_gpu.decoding.records import TENSOR
from unweight_gpu.device.buffers import BufferPlan
from unweight_gpu.palette.format import PaletteOffsets


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor of a batch.

    Attributes:
        number: Position of its record.
        kernel: Name of the kernel that decodes its chunks.
        tables: First table and number of tables of every stream that has some.
        classes: How many tables the symbols' classes have; 0 where each chunk chooses one.
        model: The model of the tensor, kept so that its ``id`` is not used again.
    """

    number: int
    kernel: str
    tables: dict[str, tuple[int, int]]
    classes: int
    model: TensorModel


class TensorTable:
    """Collects tensors; each is described once, however many spans of it there are."""

    def __init__(self) -> None:
        self._entries: dict[int, TensorRow] = {}
        self._records = list[NDArray[np.void]]()
        self._frequencies, self._table_count = list[Frequencies](), 0
        self._plan, self._blobs = BufferPlan(), list[tuple[int, Bytes]]()

    def entry(self, model: TensorModel) -> TensorRow:
        """Return the entry of a tensor."""
        found = self._entries.get(id(model))
        if found is None:
            found = self._entries[id(model)] = self._add(model)
        return found

    def set_palette_offsets(self, tensor: TensorRow, offsets: PaletteOffsets) -> None:
        """Say where the palette of a tensor goes."""
        record = self._records[tensor.number]
        for name, offset in offsets.arrays.items():
            record[name] = offset
        record["escape_number"] = offsets.escapes

    def records(self) -> NDArray[np.void]:
        """Return a record of ``TENSOR`` for each."""
        return np.concatenate([np.zeros(0, TENSOR), *self._records])

    def frequencies(self) -> Frequencies:
        """Return all tables, shape (tables, 256)."""
        return np.concatenate([np.zeros((0, ALPHABET), np.uint16), *self._frequencies])

    def parameters(self) -> Bytes:
        """Return scales, levels and factors, where the records say."""
        parameters = np.zeros(self._plan.nbytes, np.uint8)
        for place, data in self._blobs:
            parameters[place : place + data.size] = data
        return parameters

    def _add(self, model: TensorModel) -> TensorRow:
        layout = model.layout
        record = np.zeros(1, TENSOR)
        record["words"], record["columns"] = layout.words, layout.columns
        record["parts"] = len(model.streams().keys() - {"symbol", "escape"})
        tables = {name: self._add_tables(rows) for name, rows in model.tables.items()}
        kernel = f"join_planes_{layout.word_bytes}"
        if model.bounded is not None:
            kernel = f"decode_levels_{layout.word_bytes}"
            self._describe_levels(record, model.bounded, model.spec.dtype)
        elif layout.is_float:
            kernel = f"decode_words_{layout.word_bytes}"
            record["exponent_bits"] = layout.exponent_bits
            record["mantissa_bits"] = layout.mantissa_bits
            record["top_bits"], record["base"] = model.top_bits, model.base
            record["limit"] = model.escape_limit
        if model.context_map is not None:
            kernel = f"decode_classes_{layout.word_bytes}"
            tables["symbol"] = self._add_tables(model.context_map.tables)
            record["classes"] = len(model.context_map.tables)
            for name in ("row_scales", "column_scales", "context_of_sum"):
                record[name] = self._add_blob(getattr(model.context_map, name))
        self._records.append(record)
        classes = int(record["classes"][0])
        return TensorRow(len(self._records) - 1, kernel, tables, classes, model)

    def _describe_levels(self, record: NDArray[np.void], bounded: BoundedModel, dtype: str) -> None:
        form, factors = bounded.form, bounded.factors
        record["limit"], record["bias"] = form.limit, form.bias
        record["low_bits"], record["dtype"] = form.low_bits, FLOATS.index(dtype)
        if form.table is not None:
            record["has_table"] = 1
            record["level_table"] = self._add_blob(form.table.astype("<i4"))
        if factors is not None:
            record["tile_rows"], record["tile_columns"] = factors.tile
            record["down"], record["across"], record["rank"] = factors.weights.shape
            record["scale"] = factors.scale
            record["weights"] = self._add_blob(factors.weights.astype("<u2"))
            record["left"] = self._add_blob(factors.left)
            record["right"] = self._add_blob(factors.right)

    def _add_tables(self, rows: Frequencies) -> tuple[int, int]:
        first = self._table_count
        self._frequencies.append(rows)
        self._table_count += len(rows)
        return first, len(rows)

    def _add_blob(self, values: NDArray[np.generic]) -> int:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        place = self._plan.add(data.size)
        self._blobs.append((place, data))
        return place
