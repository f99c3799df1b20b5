"""Decode batches of chunks on a device."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unweight_codecs.errors import IntegrityError
from unweight_gpu import kernels
from unweight_gpu.decoding.batch import Batch
from unweight_gpu.decoding.records import STATUSES, TEAM
from unweight_gpu.device.interface import Array, Device, Function

_THREADS: Final = 32 * TEAM


class Decoder:
    """The decoding kernels, compiled for a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._module = device.load(kernels.source("decode"))

    def launch(self, batch: Batch, coded: Array, out: Array) -> Array:
        """Start decoding ``coded`` into ``out``, arrays of bytes on the device.

        Returns an array of u32 on the device: 0, or what is wrong with each chunk, once the work is
        done.
        """
        prepared = self.prepare(batch, coded, out)
        prepared.start()
        return prepared.status

    def prepare(self, batch: Batch, coded: Array, out: Array) -> "LaunchPlan":
        """Bring the description of a batch to the device: it may be decoded more than once."""
        device = self._device
        status = device.array(np.zeros(max(1, len(batch.span_of_chunk)), np.uint32))
        parameters, frequencies = device.array(batch.parameters), device.array(batch.frequencies)
        expanded = device.empty(batch.expanded_bytes, np.uint8)
        chunks, tensors, teams = (
            device.array(records.view(np.uint8))
            for records in (batch.chunks, batch.tensors, batch.chunk_teams)
        )
        buffers: tuple[Any, ...] = (
            coded,
            np.uint64(coded.nbytes),
            parameters,
            np.uint64(batch.parameters.size),
            expanded,
            np.uint64(batch.expanded_bytes),
            out,
            np.uint64(out.nbytes),
            frequencies,
            np.uint32(len(batch.frequencies)),
            status,
            np.uint32(len(batch.span_of_chunk)),
        )
        calls = list[KernelCall]()
        if len(batch.stream_teams):
            expand = self._module.get_function("expand_streams")
            streams = device.array(batch.streams.view(np.uint8))
            stream_teams = device.array(batch.stream_teams.view(np.uint8))
            calls.append(
                KernelCall(expand, len(batch.stream_teams), (stream_teams, streams, *buffers))
            )
        for launch in batch.launches:
            mine = teams[launch.first * batch.chunk_teams.itemsize :]
            function = self._module.get_function(launch.kernel)
            calls.append(KernelCall(function, launch.teams, (mine, chunks, tensors, *buffers)))
        return LaunchPlan(tuple(calls), status)


class KernelCall(NamedTuple):
    """A kernel, the number of teams that it is for, and its arguments."""

    function: Function
    teams: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A batch that is described to the device; ``status`` is that of its chunks."""

    calls: tuple[KernelCall, ...]
    status: Array

    def start(self) -> None:
        """Start decoding. What is wrong with a chunk stays in ``status``."""
        for call in self.calls:
            call.function((call.teams,), (_THREADS,), call.args)


def damage(batch: Batch, status: NDArray[np.uint32]) -> tuple[int, IntegrityError] | None:
    """Return the first span that kernels found to be damaged, and what to say about it."""
    wrong = np.flatnonzero(status[: len(batch.span_of_chunk)])
    if not wrong.size:
        return None
    number = int(wrong[0])
    span = int(batch.span_of_chunk[number])
    return span, IntegrityError(STATUSES[int(status[number])])
