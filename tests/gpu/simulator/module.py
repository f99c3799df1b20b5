"""Compiled kernels, with the part of the interface of CuPy's ``RawModule`` that Unweight uses."""

import ctypes
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.gpu.simulator import compiler, memory
from tests.gpu.simulator.errors import KernelFault, LaunchError
from tests.gpu.simulator.parameters import Held, Parameter

SHARED_LIMIT: Final = 48 << 10  # bytes of a block, unless a kernel asks for more
_MAX_BLOCKS: Final = (2**31 - 1, 65535, 65535)
_MAX_THREADS: Final = (1024, 1024, 64)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the simulated device.

    Attributes:
        shared_bytes: Shared memory that a block can have if its kernel asks for more than 48 KiB.
        processor_seconds: Time after which a launch is taken for an endless loop.
    """

    shared_bytes: int = 227 << 10
    processor_seconds: int = 120


class _Report(ctypes.Structure):
    _fields_ = (("message", ctypes.c_char * 1000), ("instruction", ctypes.c_uint64))


class _Request(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("shared_limit", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("processor_seconds", ctypes.c_uint64),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("buffers", ctypes.POINTER(memory.Buffer)),
        ("buffer_count", ctypes.c_uint64),
        ("report", ctypes.POINTER(_Report)),
    )


class Function:
    """A kernel.

    Attributes:
        name: Of the kernel.
        max_dynamic_shared_size_bytes: What launches may ask for; more than 48 KiB has to be set.
    """

    def __init__(
        self, library: ctypes.CDLL, path: Path, name: str, seed: int, limits: Limits
    ) -> None:
        self.name = name
        self.max_dynamic_shared_size_bytes = SHARED_LIMIT
        self._path = path
        self._seed = seed
        self._limits = limits
        self._launch = getattr(library, f"{name}__launch")
        self._launch.argtypes = (ctypes.POINTER(_Request),)
        signature = getattr(library, f"{name}__signature")
        signature.restype = ctypes.c_char_p
        self._parameters = [Parameter.parse(text) for text in signature().decode().split()]
        self._max_threads = int(getattr(library, f"{name}__max_threads")())
        # The process that runs the kernel writes it.
        shared = memory.empty(ctypes.sizeof(_Report), np.uint8, 8)
        self._report = _Report.from_buffer(shared.data)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[object],
        shared_mem: int = 0,
    ) -> None:
        """Run the kernel.

        Args:
            grid: Blocks in up to three dimensions.
            block: Threads of a block in up to three dimensions.
            args: Arrays in device memory for pointers; NumPy scalars of exactly the parameters'
                types for the others, and for structures those of a structured dtype.
            shared_mem: Bytes of dynamic shared memory.

        Raises:
            LaunchError: Something does not fit the kernel or the device; nothing has run.
            KernelFault: The kernel did what is not allowed.
        """
        blocks = self._extent("grid", grid, _MAX_BLOCKS)
        threads = self._extent("block", block, _MAX_THREADS)
        if math.prod(block) > self._max_threads:
            given = f"{math.prod(block)} threads in a block"
            raise LaunchError(f"{self.name}: {given}, at most {self._max_threads}")
        limit = self._shared_limit(shared_mem)
        values = self._values(args)
        buffers = self._buffers(args)
        ctypes.memset(ctypes.byref(self._report), 0, ctypes.sizeof(_Report))
        request = _Request(
            grid=blocks,
            block=threads,
            shared_bytes=shared_mem,
            shared_limit=limit,
            seed=self._seed,
            processor_seconds=self._limits.processor_seconds,
            arguments=(ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)),
            buffers=buffers,
            buffer_count=len(buffers),
            report=ctypes.pointer(self._report),
        )
        status = self._launch(ctypes.byref(request))
        self._raise_fault(status)

    def _extent(
        self, name: str, extent: tuple[int, ...], most: tuple[int, int, int]
    ) -> "ctypes.Array[ctypes.c_uint32]":
        inside = all(1 <= size <= end for size, end in zip(extent, most, strict=False))
        if not 1 <= len(extent) <= 3 or not inside:
            raise LaunchError(f"{self.name}: {name} {extent} is not within {most}")
        return (ctypes.c_uint32 * 3)(*(*extent, 1, 1)[:3])

    def _shared_limit(self, dynamic: int) -> int:
        """Return the bytes of shared memory that a block can have, fixed and dynamic."""
        asked, device = self.max_dynamic_shared_size_bytes, self._limits.shared_bytes
        most = min(asked, device)
        if not 0 <= dynamic <= most:
            raise LaunchError(f"{self.name}: {dynamic} bytes of shared memory, the limit is {most}")
        return SHARED_LIMIT if asked <= SHARED_LIMIT else device

    def _values(self, args: Sequence[object]) -> list[Held]:
        if len(args) != len(self._parameters):
            given = f"{len(args)} arguments for {len(self._parameters)} parameters"
            raise LaunchError(f"{self.name}: {given}")
        values = []
        for number, (parameter, argument) in enumerate(zip(self._parameters, args, strict=True), 1):
            try:
                values.append(parameter.value_of(argument))
            except LaunchError as error:
                raise LaunchError(f"{self.name}: argument {number} {error}") from None
        return values

    def _buffers(self, args: Sequence[object]) -> "ctypes.Array[memory.Buffer]":
        """Return all global memory. What is passed as constant data only becomes read-only."""
        passed: dict[memory.GuardedMemory, tuple[int, bool]] = {}
        for number, (parameter, argument) in enumerate(zip(self._parameters, args, strict=True), 1):
            owner = memory.memory_of(argument) if parameter.is_pointer else None
            if owner is not None:
                first, is_read_only = passed.get(owner, (number, True))
                passed[owner] = first, is_read_only and parameter.is_constant
        live = memory.live_memory()
        described = (owner.describe(*passed.get(owner, (0, False))) for owner in live)
        return (memory.Buffer * len(live))(*described)

    def _raise_fault(self, status: int) -> None:
        """Raise what the process that ran the kernel reported, or how it ended."""
        message = bytes(self._report.message).decode(errors="replace")
        if message:
            place = compiler.source_line(self._path, self._report.instruction)
            raise KernelFault(f"{self.name}: {place}{message}")
        if status < 0:
            raise LaunchError(f"{self.name}: no process could be started")
        if status:
            code = os.waitstatus_to_exitcode(status)
            ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            raise KernelFault(f"{self.name}: the process that ran it ended early: {ended}")
        for owner in memory.live_memory():
            if owner.is_overrun():
                raise KernelFault(f"{self.name}: wrote next to a buffer of {owner.nbytes} bytes")


class Module:
    """A compiled .cu file; the seed is of the order in which its kernels' threads run."""

    def __init__(self, library: Path, seed: int, limits: Limits) -> None:
        self._path = library
        self._library = ctypes.CDLL(str(library))
        self._seed = seed
        self._limits = limits

    def get_function(self, name: str) -> Function:
        """Return the kernel of a name.

        Raises:
            LaunchError: There is none.
        """
        try:
            return Function(self._library, self._path, name, self._seed, self._limits)
        except AttributeError:
            message = f'there is no kernel {name}; it must be extern "C" __global__ void'
            raise LaunchError(message) from None
