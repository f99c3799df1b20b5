"""The parts of the benchmark: what is measured in which order."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cpu.bounded import BlockCoder, BoundedCoder
from benchmarks.cpu.general import xz, zstd
from benchmarks.cpu.measure import Coder, Growth, Measurement, measure
from benchmarks.cpu.peers import UnweightCoder, ZipnnCoder
from benchmarks.cpu.processes import (
    ProcessFigures,
    large_commands,
    peer_commands,
    run_commands,
    unweight_commands,
)
from benchmarks.data.gguf_models import derived_models, published_model
from benchmarks.data.weights import controls, real_models
from benchmarks.report.results import QuotedFigure, Section
from unweight_codecs.presets import DEFAULT, PRESETS

PROCESS_MODEL: Final = "MiniLM BF16"
BOUNDED_MODELS: Final = ("MiniLM BF16", "MiniLM F16", "MiniLM F32")
BLOCK_TYPES: Final = ("Q8_0", "Q4_0")
# What the authors of lmz state for the published file.
_LMZ_PERCENT: Final = 88.06


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure: rounds, whether a file of 2 GiB, and the folder for files."""

    rounds: int
    large: bool
    folder: Path


def safetensors(plan: Plan) -> Section:
    """Measure floats beside zipnn and zstd, and what cannot shrink."""
    own = [UnweightCoder(name) for name in PRESETS]
    joined = UnweightCoder(DEFAULT, joined=True)
    coders: list[Coder] = [*own, joined, ZipnnCoder(), zstd(3)]
    models: list[Measurement] = []
    processes: list[ProcessFigures] = []
    for data in real_models(plan.folder):
        _tell(data.name)
        models += measure(data, coders, plan.rounds)
        if data.name == PROCESS_MODEL:
            _tell(f"whole processes on {data.name}")
            processes += run_commands(peer_commands(data, plan.folder), plan.rounds)
    growth: list[Growth] = []
    for data in controls(plan.folder):
        _tell(data.name)
        size = data.path.stat().st_size
        growth += [Growth(data.name, each.name, size, each.file_bytes(data) or 0) for each in own]
    if plan.large:
        _tell("whole processes on a large file")
        processes += run_commands(large_commands(plan.folder), 1)
    return Section(tuple(models), controls=tuple(growth), processes=tuple(processes))


def gguf(plan: Plan) -> Section:
    """Measure a quantised model beside xz and zstd, and the same weights in other types."""
    default, best = UnweightCoder(DEFAULT), UnweightCoder("max")
    published = published_model()
    _tell(published.name)
    models = measure(published, [default, best], plan.rounds)
    _tell(f"{published.name} with xz and zstd, which takes minutes")
    models += measure(published.as_bytes(), [xz(6), zstd(19)], 1, warm_up=False)
    _tell(f"whole processes on {published.name}")
    words = unweight_commands(published.name, published.path, plan.folder, threads=1)
    processes = run_commands(words, plan.rounds)
    for data in derived_models(plan.folder):
        _tell(data.name)
        models += measure(data, [default], plan.rounds)
    quoted = QuotedFigure(published.name, "lmz", _LMZ_PERCENT)
    return Section(tuple(models), quoted=(quoted,), processes=tuple(processes))


def bounded(plan: Plan) -> Section:
    """Measure the error-bounded mode beside block quantisation at the same error, and zipnn."""
    models: list[Measurement] = []
    processes: list[ProcessFigures] = []
    for data in real_models(plan.folder):
        if data.name not in BOUNDED_MODELS:
            continue
        _tell(f"{data.name} within an error bound")
        coders: list[Coder] = []
        for peer in (BlockCoder(name) for name in BLOCK_TYPES):
            error = peer.run(data).error
            coders += [BoundedCoder(DEFAULT, error, peer.name), peer]
            if data.name == PROCESS_MODEL and peer.name == BLOCK_TYPES[0]:
                options = ("--epsilon", f"{error:.6g}")
                words = unweight_commands(data.name, data.path, plan.folder, 1, options)
                processes += run_commands(words, plan.rounds)
        models += measure(data, [*coders, ZipnnCoder()], plan.rounds)
    return Section(tuple(models), processes=tuple(processes))


SECTIONS: Final[dict[str, Callable[[Plan], Section]]] = {
    "safetensors": safetensors,
    "bounded": bounded,
    "gguf": gguf,
}


def _tell(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)
