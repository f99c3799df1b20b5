"""Let a device measure how it multiplies best with the matrices of a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from unweight.archive import ArchiveReader, is_archive
from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight.operations.files import open_job
from unweight_codecs.accelerators import CPU, TuningReport, open_accelerator
from unweight_codecs.errors import ResourceError, UsageError
from unweight_codecs.tensor_spec import TensorSpec

MOST_BATCH: Final = 1024  # larger ones are measured like this
_TUNED: Final = "BF16"  # what palettes hold


def tune(source: Path, batches: Sequence[int], device: str) -> TuningReport:
    """Measure every distinct matrix of a checkpoint, compressed or not, with each batch.

    Only the headers of the files are read. Raises UsageError where there is nothing to measure,
    ResourceError without a device.
    """
    if not batches or not all(1 <= batch <= MOST_BATCH for batch in batches):
        raise UsageError(f"must be numbers from 1 to {MOST_BATCH}", parameter="batch")
    if device == CPU:
        raise UsageError(
            "must be cuda or cuda:N: there is nothing to tune on cpu", parameter="device"
        )
    shapes = sorted({spec.shape for spec in _specs(source) if is_tunable(spec)})
    if not shapes:
        raise UsageError(f"{source}: no {_TUNED} matrix in it", hint="only those are tuned")
    reasons = list[str]()
    accelerator, number = open_accelerator(device, reasons.append)
    if accelerator is None:
        raise ResourceError(f"no device to tune: {reasons[0]}", hint="see unweight doctor")
    return accelerator.tune(number, [(rows, columns) for rows, columns in shapes], batches)


def is_tunable(spec: TensorSpec) -> bool:
    """Whether a tensor is a BF16 matrix, the kind that palettes are made of."""
    return spec.dtype == _TUNED and len(spec.shape) == 2 and min(spec.shape) > 0


def _specs(source: Path) -> list[TensorSpec]:
    specs = list[TensorSpec]()
    for path, _ in open_job(source).models:
        with FileSource(path) as file:
            index = read_index(file)
        if is_archive(index):
            with ArchiveReader(path) as archive:
                specs += [entry.spec for entry, _ in archive.tensors()]
        else:
            specs += [entry.spec for entry in index.tensors]
    return specs
