"""``python -m benchmarks.gpu``: Unweight on a CUDA device, compared first and then measured.

It runs from the root of the source tree, is meant for a few minutes, and sets up all it needs:

    pip install '.[gpu]'                      # CuPy for CUDA 13; for CUDA 12: '.[gpu-cuda12]'
    pip install torch nvidia-nvcomp-cu13      # peers; what is missing is left out, and said so
    python -m benchmarks.gpu --json gpu.json --model model.safetensors

Part 1 compares every kernel with the processor and stops with exit code 4 at a difference. Part 2
measures: medians of CUDA events (files: of the clock), least and greatest beside them, with copies
that take turns where a cache could hold the data. What fails in another way is noted, the rest goes
on, and the exit code tells. Without CuPy or a device: one line, exit code 6.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.gpu.checks import groups
from benchmarks.gpu.data import LAYER, Layer, Shape, made_up_layer, model_layer
from benchmarks.gpu.decoding import LARGE, SMALL, decoding
from benchmarks.gpu.figures import DECODING, EXPANDING, FUSED, LOADING
from benchmarks.gpu.files import loading, write_layers
from benchmarks.gpu.palettes import MULTIPLIED, Peer, expanding, products
from benchmarks.gpu.peers import LEFT_OUT, device_copy, nvcomp_ans, peers
from benchmarks.gpu.results import Results, Section
from unweight_codecs.errors import UnweightError
from unweight_codecs.kernels import active_kernel
from unweight_codecs.kernels.reference import ReferenceKernels
from unweight_codecs.presets import DEFAULT, PRESETS
from unweight_gpu.accelerator import CudaAccelerator
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.failures import device_errors
from unweight_gpu.device.interface import StreamingDevice
from unweight_gpu.device.timing import EventTimer, Timer
from unweight_gpu.device_tensors import RESIDENT_BYTES

MODEL_BYTES: Final = 512 << 20  # of a model's matrices that are decoded
_LAYERS: Final = 4  # of the file that is loaded


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        shapes: Of the layer's matrices.
        products: Names of those that are multiplied.
        layers: Of the file that is loaded.
        cases: Presets, and log2 of the words of a chunk, of layers that are decoded.
        is_judged: Whether all is as large as targets are meant for.
        model: A file with real weights.
    """

    shapes: Mapping[str, Shape]
    products: tuple[str, ...]
    layers: int
    cases: tuple[tuple[str, int], ...]
    is_judged: bool
    model: Path | None = None


def plan(*, quick: bool, model: Path | None) -> Plan:
    """Return what is measured; a ``quick`` run has matrices a fourth as high and wide."""
    part = 4 if quick else 1
    return Plan(
        {name: (rows // part, cols // part) for name, (rows, cols) in LAYER.items()},
        MULTIPLIED,
        1 if quick else _LAYERS,
        tuple((preset, log2) for preset in PRESETS for log2 in (LARGE, SMALL)),
        not quick,
        model,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, measure and print; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        device = _opened(options.device)
        with device_errors():
            results = Results(device.description, options.json, notes=[LEFT_OUT])
            try:
                _run(device, results, plan(quick=options.quick, model=options.model))
            finally:
                print(f"\n{results.text()}", flush=True)
    except UnweightError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return error.exit_code
    return max(results.failures, default=0)


def sections(
    device: StreamingDevice,
    timer: Timer,
    chosen: Plan,
    layer: Layer,
    model: Layer | None,
    beside: Sequence[Peer],
    folder: Path,
) -> list[Section]:
    """Return what is measured of Unweight, by name."""
    aims = (DECODING, EXPANDING, FUSED, LOADING) if chosen.is_judged else (None,) * 4
    words, expanded, fused, loaded = aims
    multiplied = [layer.matrices[name] for name in chosen.products]
    found: list[Section] = [
        ("decoding", partial(decoding, device, timer, layer, chosen.cases, words)),
        ("expanding", lambda: [expanding(device, timer, layer, expanded)]),
        *(
            (
                f"products beside {peer.name}" if peer else "products",
                partial(products, device, timer, peer, multiplied, None if number else fused),
            )
            for number, peer in enumerate(beside or [None])
        ),
        (
            "loading",
            lambda: loading(device, write_layers(folder, layer, chosen.layers), folder, loaded),
        ),
    ]
    if model is not None and chosen.model is not None:
        cases, is_large = ((DEFAULT, LARGE),), chosen.model.stat().st_size >= RESIDENT_BYTES
        aim = LOADING if is_large else None
        found += [
            ("decoding real weights", partial(decoding, device, timer, model, cases)),
            ("loading a model", partial(loading, device, chosen.model, folder, aim)),
        ]
    return found


def _run(device: CudaDevice, results: Results, chosen: Plan) -> None:
    if active_kernel() == ReferenceKernels.name:
        results.notes.append("the kernels of the processor are not compiled: encoding takes long")
        results.tell(results.notes[-1])
    model = model_layer(chosen.model, MODEL_BYTES) if chosen.model else None
    results.compare(groups(device, model=model))
    timer, layer = EventTimer(device), made_up_layer(chosen.shapes)
    note = results.notes.append
    with tempfile.TemporaryDirectory(prefix="unweight-bench-") as folder:
        beside = peers(device, note)
        results.measure(
            [
                ("device copy", lambda: [device_copy(device, timer)]),
                *sections(device, timer, chosen, layer, model, beside, Path(folder)),
                ("nvCOMP", partial(nvcomp_ans, device, timer, layer, note)),
            ]
        )


def _opened(number: int) -> CudaDevice:
    print(CudaAccelerator().require(number), flush=True)
    return CudaDevice(number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Compare Unweight on a CUDA device with the processor, then measure it.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    parser.add_argument("--quick", action="store_true", help="smaller matrices, for a trial")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number (default: 0)")
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="also a checkpoint, with real weights in BF16"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
