"""Let a device measure how it multiplies best with the matrices of a model.

What measures is brought by packages, in the group ``unweight.tuners``: under the name of an
accelerator, for the devices that it knows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeGuard, runtime_checkable

from unweight.archive import ArchiveReader, is_archive
from unweight.containers.base import FileSource
from unweight.containers.registry import read_index
from unweight.operations.files import open_job
from unweight_codecs.accelerators import CPU, find_accelerator
from unweight_codecs.errors import ResourceError, UsageError
from unweight_codecs.plugins import PluginGroup
from unweight_codecs.tensor_spec import TensorSpec

MAX_BATCH: Final = 1024  # larger ones are measured like this
_TUNED: Final = "BF16"  # what palettes hold


class TuningRow(Protocol):
    """What was measured for a matrix [rows, columns] and a number of rows of activations."""

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        ...

    @property
    def columns(self) -> int:
        """Columns of the matrix."""
        ...

    @property
    def batch(self) -> int:
        """Rows of activations that it was multiplied with."""
        ...

    @property
    def seconds(self) -> Mapping[str, float]:
        """The median time of every strategy."""
        ...

    @property
    def best(self) -> str:
        """The fastest strategy."""
        ...

    @property
    def cached(self) -> bool:
        """Whether it was measured earlier."""
        ...


class TuningReport(Protocol):
    """What a tuner has measured."""

    @property
    def device(self) -> str:
        """Name of the device and its driver."""
        ...

    @property
    def rows(self) -> Sequence[TuningRow]:
        """The measurements, by matrix."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong with the file that keeps them."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        ...


@runtime_checkable
class Tuner(Protocol):
    """Measures on the devices of one accelerator."""

    def tune(
        self, number: int, shapes: Sequence[tuple[int, int]], batches: Sequence[int]
    ) -> TuningReport:
        """Measure how a device multiplies best with BF16 matrices, and remember it.

        ``shapes`` are rows and columns, ``batches`` rows of activations. Raises ResourceError when
        the device is not there or fails.
        """
        ...


def _is_tuner(found: object) -> TypeGuard[Tuner]:
    return isinstance(found, Tuner)


TUNERS: Final = PluginGroup(
    "unweight.tuners", "tuner", "a Tuner", _is_tuner, make=lambda tuner_class: tuner_class()
)


def tune(source: Path, batches: Sequence[int], device: str) -> TuningReport:
    """Measure every distinct matrix of a checkpoint, compressed or not, with each batch.

    Only the headers of the files are read. Raises UsageError where there is nothing to measure,
    ResourceError without a device.
    """
    if not batches or not all(1 <= batch <= MAX_BATCH for batch in batches):
        raise UsageError(f"must be numbers from 1 to {MAX_BATCH}", parameter="batch")
    if device == CPU:
        raise UsageError(
            "must be cuda or cuda:N: there is nothing to tune on cpu", parameter="device"
        )
    shapes = sorted({spec.shape for spec in _specs(source) if is_tunable(spec)})
    if not shapes:
        raise UsageError(f"{source}: no {_TUNED} matrix in it", hint="only those are tuned")
    reasons = list[str]()
    found = find_accelerator(device, reasons.append)
    if found is None:
        raise ResourceError(f"no device to tune: {reasons[0]}", hint="see unweight doctor")
    name, number = found
    if name not in TUNERS.names():
        raise ResourceError(f"no device to tune: what brings {name} does not measure products")
    return TUNERS.load(name).tune(number, [(rows, columns) for rows, columns in shapes], batches)


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
