"""Compiled kernels, with the part of the interface of CuPy's ``RawModule`` that Unweight uses."""

import ctypes
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.gpu.simulator import compiler, memory
from tests.gpu.simulator.errors import KernelFault, LaunchError

SHARED_LIMIT: Final = 48 << 10  # of a block, unless a kernel asks for more
MOST_THREADS: Final = 1024
_MOST_BLOCKS: Final = (2**31 - 1, 65535, 65535)
_MOST_IN_BLOCK: Final = (1024, 1024, 64)


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
        ("report", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """How kernels run.

    Attributes:
        seed: Of the order of blocks and threads.
        device_shared_limit: Bytes of shared memory that a kernel may ask for.
        processor_seconds: Time after which a launch is taken for an endless loop.
    """

    seed: int = 0
    device_shared_limit: int = 227 << 10
    processor_seconds: int = 120


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: kind as in NumPy's array interface, and bytes; of the elements if
    it is a pointer. Kinds beyond NumPy's: ``s`` a structure, ``v`` void.
    """

    is_pointer: bool
    is_constant: bool
    kind: str
    size: int

    @classmethod
    def parse(cls, text: str) -> "Parameter":
        """Read what ``describe_parameter`` of launch.h has written."""
        scalar = text.lstrip("*").removeprefix("c")
        return cls(text.startswith("*"), text.startswith("*c"), scalar[0], int(scalar[1:]))

    def fits(self, dtype: np.dtype[Any]) -> bool:
        """Return whether values of a dtype are of this type."""
        kind = {"b": "u", "V": "s"}.get(dtype.kind, dtype.kind)
        return (kind, dtype.itemsize) == (self.kind, self.size)

    def __str__(self) -> str:
        names = {"i": "int", "u": "uint", "f": "float"}
        name = f"{names[self.kind]}{8 * self.size}" if self.kind in names else "structure"
        name = "void" if self.kind == "v" else f"{name} of {self.size} bytes" * (self.kind == "s") or name
        return f"pointer to {name}" if self.is_pointer else name


class Function:
    """A kernel."""

    def __init__(self, library: ctypes.CDLL, path: Path, name: str, settings: Settings):
        self.name = name
        self.max_dynamic_shared_size_bytes = SHARED_LIMIT
        self._settings = settings
        self._path = path
        self._launch: Any = getattr(library, f"{name}__launch")
        self._launch.argtypes = (ctypes.POINTER(_Request),)
        signature: Any = getattr(library, f"{name}__signature")
        signature.restype = ctypes.c_char_p
        self._parameters = [Parameter.parse(text) for text in signature().decode().split()]
        self._most_threads = int(getattr(library, f"{name}__most_threads")())

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
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
        extents = self._extents(grid, block)
        limit = self._shared_limit(shared_mem)
        if len(args) != len(self._parameters):
            given = f"{len(args)} arguments for {len(self._parameters)} parameters"
            raise LaunchError(f"{self.name}: {given}")
        values = [
            self._value(number, parameter, value)
            for number, (parameter, value) in enumerate(zip(self._parameters, args, strict=True), 1)
        ]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        buffers = self._buffers(args)
        shared = memory.empty(ctypes.sizeof(_Report), np.uint8, 1)
        shared[:] = 0
        report = _Report.from_buffer(shared)
        request = _Request(
            *extents,
            shared_mem,
            limit,
            self._settings.seed,
            self._settings.processor_seconds,
            addresses,
            buffers,
            len(buffers),
            ctypes.addressof(report),
        )
        status = self._launch(ctypes.byref(request))
        self._raise_fault(status, report)

    def _extents(self, grid: Sequence[int], block: Sequence[int]) -> tuple[Any, Any]:
        threads = int(np.prod(block))
        for name, extent, most in (("grid", grid, _MOST_BLOCKS), ("block", block, _MOST_IN_BLOCK)):
            inside = all(1 <= size <= end for size, end in zip(extent, most, strict=False))
            if not 1 <= len(extent) <= 3 or not inside:
                raise LaunchError(f"{self.name}: {name} {tuple(extent)} is beyond {most}")
        if threads > min(self._most_threads, MOST_THREADS):
            most_threads = min(self._most_threads, MOST_THREADS)
            raise LaunchError(f"{self.name}: {threads} threads in a block of at most {most_threads}")
        triple = ctypes.c_uint32 * 3
        return triple(*(*grid, 1, 1)[:3]), triple(*(*block, 1, 1)[:3])

    def _shared_limit(self, dynamic: int) -> int:
        asked = self.max_dynamic_shared_size_bytes
        device = self._settings.device_shared_limit
        if asked > device:
            raise LaunchError(f"{self.name}: {asked} bytes of shared memory, the device has {device}")
        if not 0 <= dynamic <= asked:
            raise LaunchError(f"{self.name}: {dynamic} bytes of shared memory, the limit is {asked}")
        return SHARED_LIMIT if asked <= SHARED_LIMIT else device

    def _value(self, number: int, parameter: Parameter, value: Any) -> Any:
        """Return the value of a parameter as ctypes holds it."""
        name = f"{self.name}: argument {number}"
        if not parameter.is_pointer:
            if not isinstance(value, np.generic) or not parameter.fits(value.dtype):
                given = value.dtype if isinstance(value, np.generic) else type(value).__name__
                raise LaunchError(f"{name} is {given}, the kernel takes {parameter}")
            return ctypes.create_string_buffer(value.tobytes(), value.nbytes)
        if value is None:
            return ctypes.c_void_p()
        if not isinstance(value, np.ndarray):
            raise LaunchError(f"{name} is {type(value).__name__}, the kernel takes {parameter}")
        # Bytes may be anything, and anything may be looked at as bytes.
        if 1 not in (value.itemsize, parameter.size or 1) and not parameter.fits(value.dtype):
            raise LaunchError(f"{name} is an array of {value.dtype}, the kernel takes {parameter}")
        if not value.flags.c_contiguous:
            raise LaunchError(f"{name} is not contiguous")
        try:
            memory.memory_of(value)
        except LaunchError as error:
            raise LaunchError(f"{name}: {error}") from None
        return ctypes.c_void_p(value.ctypes.data)

    def _buffers(self, args: Sequence[Any]) -> "ctypes.Array[memory.Buffer]":
        """Return all global memory; what is passed as constant data only becomes read-only."""
        passed: dict[memory.GuardedMemory, tuple[int, bool]] = {}
        pairs = zip(self._parameters, args, strict=True)
        for number, (parameter, value) in enumerate(pairs, 1):
            if isinstance(value, np.ndarray):
                owner = memory.memory_of(value)
                first, is_read_only = passed.get(owner, (number, True))
                passed[owner] = first, is_read_only and parameter.is_constant
        live = memory.live_memory()
        described = []
        for owner in live:
            argument, is_read_only = passed.get(owner, (0, False))
            described.append(owner.describe(argument, is_read_only=is_read_only))
        return (memory.Buffer * len(live))(*described)

    def _raise_fault(self, status: int, report: _Report) -> None:
        message = bytes(report.message).decode()
        if message:
            place = compiler.source_line(self._path, report.instruction) if report.instruction else ""
            raise KernelFault(f"{self.name}: {place}{message}")
        if status:
            ended = os.waitstatus_to_exitcode(status) if status >= 0 else "no process could be made"
            name = signal.Signals(-ended).name if isinstance(ended, int) and ended < 0 else ended
            raise KernelFault(f"{self.name}: the process that ran the kernel ended early: {name}")
        for owner in memory.live_memory():
            if owner.is_overrun():
                raise KernelFault(f"{self.name}: bytes around a buffer of {owner.size} were written")


class Module:
    """A compiled .cu file."""

    def __init__(self, library: Path, settings: Settings):
        self._path = library
        self._library = ctypes.CDLL(str(library))
        self._settings = settings

    def get_function(self, name: str) -> Function:
        """Return the kernel of a name.

        Raises:
            LaunchError: There is none.
        """
        try:
            return Function(self._library, self._path, name, self._settings)
        except AttributeError:
            raise LaunchError(f'no kernel {name}: is it extern "C" __global__ void?') from None
