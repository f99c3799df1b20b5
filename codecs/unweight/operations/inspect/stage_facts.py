"""What every stage did to a tensor, as labels and printable values."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from unweight.operations.report import TensorReport
from unweight_codecs.accelerators import PayloadHead
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.level_tables import TABLES
from unweight_codecs.codec import SLOTS_IN_ORDER
from unweight_codecs.entropy import frequencies
from unweight_codecs.kernels.operands import ALPHABET, LevelForm, LowRank
from unweight_codecs.model import SCALE_UNITS, BoundedModel, TensorModel
from unweight_codecs.pipeline import Pipeline

Facts = dict[str, str | int | float]


def facts_of(
    slot: str, head: PayloadHead, counts: NDArray[np.int64], row: TensorReport
) -> Mapping[str, str | int | float]:
    """Return the facts of the stage in ``slot``; ``counts`` are those of the main stream's values.

    A stage that has nothing to do with the tensor has none.
    """
    model = head.model
    if slot == "pack":
        return {
            "chunks": model.chunks,
            "words per chunk": model.chunk_words,
            "head bytes": head.head_bytes,
        }
    if model.bounded:
        return _bounded(slot, head, model.bounded, counts, row)
    return _exact(slot, model, counts)


def _exact(slot: str, model: TensorModel, counts: NDArray[np.int64]) -> Facts:
    if slot == "outlier" and model.layout.is_float:
        limit = model.split.escape_limit
        escapes = int(counts[limit:].sum()) if limit < ALPHABET else 0
        return {
            "exponent window": f"{model.base} to {model.base + model.window - 1}",
            "escapes": escapes,
            "escape share": _share(escapes, model),
        }
    if slot == "grid":
        return {"mantissa bits in the symbol (m)": model.top_bits, **_tables(model)}
    if slot == "tile_svd":
        return _classes(model)
    if slot == "bound":
        return {"error": "0: every bit was compared when the file was written"}
    return {}


def _classes(model: TensorModel) -> Facts:
    if model.context_map is None:
        return {"classes (K)": 1}
    scales = {"row": model.context_map.row_scales, "column": model.context_map.column_scales}
    side = int(frequencies.serialised_sizes(model.context_map.tables).sum())
    return {
        "classes (K)": len(model.context_map.tables),
        **{
            f"{name} scales": f"{len(values)}, {int(values.max()) / SCALE_UNITS:.2f} octaves"
            for name, values in scales.items()
        },
        "table bytes": side,
    }


def _bounded(
    slot: str,
    head: PayloadHead,
    bounded: BoundedModel,
    counts: NDArray[np.int64],
    row: TensorReport,
) -> Facts:
    model, form = head.model, bounded.form
    if slot == "outlier":
        escapes = int(counts[form.limit :].sum())
        return {"escapes": escapes, "escape share": _share(escapes, model)}
    if slot == "grid":
        return {
            "levels": _levels(form, head.pipeline),
            "symbols (limit)": form.limit,
            "low bits": form.low_bits,
            **_tables(model),
        }
    if slot == "tile_svd":
        return _factors(bounded.factors) if bounded.factors else {"rank": 0}
    if slot == "bound":
        return _errors(bounded.steps, row)
    return {}


def _levels(form: LevelForm, pipeline: Pipeline) -> str:
    if form.table is not None:
        return f"a table of {form.limit}"
    grid = pipeline.stages[SLOTS_IN_ORDER.index("grid")]
    if isinstance(grid, LevelGrid) and grid.spacing in TABLES:
        return f"equally spaced: no table by {grid.spacing} keeps the bound"
    return "equally spaced"


def _factors(factors: LowRank) -> Facts:
    height, width = factors.tile
    down, across, rank = factors.weights.shape
    return {
        "rank": rank,
        "tile": f"{height} x {width}",
        "tiles": down * across,
        "factor bytes before zstd": factors.nbytes,
    }


def _errors(steps: NDArray[np.float32], row: TensorReport) -> Facts:
    used = steps[steps > 0]
    return {
        "error allowed": f"{row.epsilon:g}",
        "error": f"{row.error:.6g}",
        "largest error of a weight": f"{row.max_error:.6g}",
        "smallest step": f"{used.min():.6g}" if used.size else "none",
        "largest step": f"{used.max():.6g}" if used.size else "none",
        "chunks of escapes alone": int(steps.size - used.size),
    }


def _tables(model: TensorModel) -> Facts:
    return {f"tables for {stream}": len(rows) for stream, rows in model.tables.items()}


def _share(number: int, model: TensorModel) -> str:
    return f"{number / max(1, model.layout.words):.4%}"
