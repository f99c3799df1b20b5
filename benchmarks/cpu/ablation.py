"""What every stage of the error-bounded mode is worth: size at equal error, with it and without.

usage: python -m benchmarks.cpu.ablation [--write]
"""

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray

from benchmarks.data.dataset import DataSet, load
from benchmarks.data.gguf_models import derived_models, twin_name
from benchmarks.data.weights import SMALL_MODEL
from benchmarks.report.markdown import table
from unweight.archive.writer import MIN_CODED_BYTES
from unweight_codecs.bounded.channel_outlier import ChannelOutlier
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.bounded.float_words import may_change, values_of
from unweight_codecs.bounded.level_grid import LevelGrid
from unweight_codecs.bounded.levels import squared_error
from unweight_codecs.bounded.tile_svd import TileSvd
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import preset
from unweight_codecs.tensor_codec import EncodedTensor, decode_tensor, encode_tensor
from unweight_codecs.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from unweight_codecs.codec import Stage

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/ablation.md"
EPSILONS: Final = (0.0025, 0.005, 0.02, 0.08)
_SEED: Final = 20240229
_SHAPE: Final = (1024, 4096)


def _pipeline(
    outlier: ChannelOutlier | None = None,
    grid: LevelGrid | None = None,
    low_rank: TileSvd | None = None,
) -> Pipeline:
    stages: tuple[Stage, ...] = (
        outlier or ChannelOutlier(),
        grid or LevelGrid("uniform"),
        low_rank or TileSvd(),
        ErrorBound(),
        Pack(),
    )
    return pipeline_of("ablation", stages)


# The first one is what the others are compared with.
VARIANTS: Final[dict[str, Pipeline]] = {
    "equally spaced levels, nothing else": _pipeline(),
    "one frequency table instead of up to 8": _pipeline(grid=LevelGrid("uniform", tables=1)),
    "levels by the CDF": _pipeline(grid=LevelGrid("cdf")),
    "levels by Lloyd-Max": _pipeline(grid=LevelGrid("lloyd")),
    "the smallest of these (auto)": _pipeline(grid=LevelGrid()),
    "outliers beyond 6 deviations exact": _pipeline(ChannelOutlier(tau=6)),
    "outliers beyond 4 deviations exact": _pipeline(ChannelOutlier(tau=4)),
    "low rank, whole matrices, up to 8": _pipeline(low_rank=TileSvd(rank=8)),
    "low rank, tiles of 256, up to 4": _pipeline(low_rank=TileSvd(rank=4, tile=256)),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A model with one variant: bits per weight, relative error, tensors that use the stage."""

    bits: float
    error: float
    used: int
    tensors: int


def measure(data: DataSet, pipeline: Pipeline, epsilon: float) -> Outcome:
    """Code every matrix of a model; those that would not shrink count as they are."""
    size = words = used = number = 0
    squares = errors = 0.0
    for spec, original in data.tensors:
        if not may_change(spec) or original.size < MIN_CODED_BYTES:
            continue
        coded = encode_tensor(pipeline, spec, original, epsilon)
        restored = _restored(pipeline, coded, original)
        square, error, _ = squared_error(original, restored, spec.dtype)
        squares, errors = squares + square, errors + error
        size += coded.size if coded else original.size
        words += spec.elements
        number += 1
        used += coded is not None and _uses_a_stage(pipeline, coded)
    return Outcome(8 * size / words, (errors / squares) ** 0.5, used, number)


def _restored(pipeline: Pipeline, coded: EncodedTensor | None, original: Bytes) -> Bytes:
    return np.concatenate(decode_tensor(pipeline, coded)) if coded else original


def _uses_a_stage(pipeline: Pipeline, coded: EncodedTensor) -> bool:
    model, _ = pipeline.read_head(coded.head, coded.spec, coded.size)
    bounded = model.bounded
    return bounded is not None and (bounded.form.table is not None or bounded.factors is not None)


def variants_table(data: DataSet) -> str:
    """Return bits per weight of every variant at every error bound."""
    rows = []
    base: dict[float, float] = {}
    for name, pipeline in VARIANTS.items():
        cells = [name]
        for epsilon in EPSILONS:
            found = measure(data, pipeline, epsilon)
            base.setdefault(epsilon, found.bits)
            change = 100 * (found.bits / base[epsilon] - 1)
            shown = f"{found.bits:.3f}"
            if pipeline is not next(iter(VARIANTS.values())):
                shown += f" ({change:+.2f} %)"
            if found.used:
                shown += f", in {found.used} of {found.tensors}"
            cells.append(shown)
        rows.append(cells)
    rows.append(["lossless, default", *[_lossless(data)] * len(EPSILONS)])
    header = ["variant", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    return table(header, rows, range(1, len(header)))


def _lossless(data: DataSet) -> str:
    size = words = 0
    for spec, original in data.tensors:
        if may_change(spec) and original.size >= MIN_CODED_BYTES:
            coded = encode_tensor(preset("default"), spec, original)
            size += coded.size if coded else original.size
            words += spec.elements
    return f"{8 * size / words:.3f}"


def peers_table(sets: Sequence[DataSet]) -> str:
    """Return bits per weight at the error that Q8_0 and Q4_0 of ggml have on the same weights."""
    rows = []
    for data in sets:
        for name in ("Q8_0", "Q4_0"):
            error, bits = _peer(data, gguf.GGMLQuantizationType[name])
            found = measure(data, VARIANTS["the smallest of these (auto)"], error)
            theirs, ours = (
                (f"{error:.5f}", f"{bits:.2f}"),
                (f"{found.error:.5f}", f"{found.bits:.3f}"),
            )
            rows.append([data.name, name, *theirs, *ours])
    header = ["weights", "peer", "its error", "its bits", "error here", "bits here"]
    return table(header, rows, range(2, len(header)))


def _peer(data: DataSet, kind: Any) -> tuple[float, float]:  # noqa: ANN401 - untyped package
    """Return the relative error and the bits per weight of a block type of ggml."""
    squares = errors = 0.0
    size = words = 0
    for spec, original in data.tensors:
        if not may_change(spec) or original.size < MIN_CODED_BYTES or spec.shape[-1] % 32:
            continue
        values = _float32(spec, original)
        packed = gguf.quants.quantize(values, kind)
        back = gguf.quants.dequantize(packed, kind).reshape(values.shape)
        difference = back.astype(np.float64) - values
        squares += float(np.square(values, dtype=np.float64).sum())
        errors += float(np.square(difference).sum())
        size, words = size + packed.nbytes, words + values.size
    return (errors / squares) ** 0.5, 8 * size / words


def _float32(spec: TensorSpec, words: Bytes) -> NDArray[np.float32]:
    return np.ascontiguousarray(values_of(words, spec.dtype).reshape(spec.shape))


def _three_layers(data: DataSet) -> DataSet:
    """Return some layers of a model: all of them would take an hour and say the same."""
    chosen = tuple(pair for pair in data.tensors if re.search(r"\b(0|14|29)\b", pair[0].name))
    return DataSet(f"{data.name}, layers 0, 14 and 29", data.path, data.dtype, chosen, ())


def _gaussian() -> DataSet:
    values = np.random.default_rng(_SEED).standard_normal(_SHAPE).astype(np.float32) * 0.02
    spec = TensorSpec("gaussian", "F32", _SHAPE)
    return DataSet("Gaussian F32", Path(), "F32", ((spec, values.view(np.uint8).reshape(-1)),), ())


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    with tempfile.TemporaryDirectory(prefix="unweight-ablation-") as folder:
        large = next(
            found for found in derived_models(Path(folder)) if found.name == twin_name("BF16")
        )
        models = (load("tiny-llama BF16", SMALL_MODEL), _three_layers(large))
        yield "# What the stages are worth in the error-bounded mode\n"
        yield from _INTRODUCTION
        for data in models:
            yield f"\n## {data.name}, bits per weight\n"
            yield variants_table(data)
        yield "\n## At the error of a block type of ggml\n"
        yield peers_table((_gaussian(), *models))
        yield from _READING


_INTRODUCTION: Final = (
    "Written by `python -m benchmarks.cpu.ablation --write`. Bits per weight over all matrices of",
    "a model, tables, steps and checksums included, where every chunk keeps the relative error ε.",
    "In brackets the change against the first row. A stage that does not pay for a tensor is left",
    "out of it; where some tensors use it, their number is given.",
)
_READING: Final = (
    "\nError is the relative error in the Frobenius norm, over all matrices. A grid with a table",
    "of levels has at most 254: where they do not keep the bound, levels are equally spaced.",
)


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu.ablation", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} in docs")
    options = parser.parse_args()
    text = "\n".join(page()) + "\n"
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
