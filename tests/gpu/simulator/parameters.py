"""What a kernel takes, and whether what it is given fits.

CUDA does not check: a wrong type is read as garbage. Here arguments have to be of exactly the types
of the parameters.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.gpu.simulator import memory
from tests.gpu.simulator.errors import LaunchError

# Kinds of types as in NumPy's array interface, for those that export.h tells apart.
_KINDS: Final = {"b": "u", "V": "s"}
Held = ctypes.c_void_p | ctypes.Array[ctypes.c_char]
_NAMES: Final = {"i": "int", "u": "uint", "f": "float"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, by value or as a pointer to data.

    Attributes:
        is_pointer: Whether kind and size are those of the elements it points to.
        is_constant: Whether it points to constant data.
        kind: ``i`` and ``u`` integers, ``f`` floating-point, ``s`` a structure, ``v`` void.
        size: In bytes.
    """

    is_pointer: bool
    is_constant: bool
    kind: str
    size: int

    @classmethod
    def parse(cls, text: str) -> "Parameter":
        """Read what ``describe_parameter`` of export.h has written."""
        value = text.lstrip("*").removeprefix("c")
        return cls(text.startswith("*"), text.startswith("*c"), value[0], int(value[1:]))

    def __str__(self) -> str:
        if self.kind in _NAMES:
            name = f"{_NAMES[self.kind]}{8 * self.size}"
        else:
            name = f"a structure of {self.size} bytes" if self.size else "void"
        return f"a pointer to {name}" if self.is_pointer else name

    def value_of(self, argument: object) -> Held:
        """Return an argument as ctypes holds what the kernel takes.

        Raises:
            LaunchError: The argument does not fit; the message starts with what it is.
        """
        if self.is_pointer:
            return ctypes.c_void_p(self._address(argument))
        if not isinstance(argument, np.generic):
            raise LaunchError(f"is {type(argument).__name__}, the kernel takes {self}")
        if not self._fits(argument.dtype):
            raise LaunchError(f"is {argument.dtype}, the kernel takes {self}")
        return ctypes.create_string_buffer(argument.tobytes(), argument.nbytes)

    def _fits(self, dtype: np.dtype[Any]) -> bool:
        return (_KINDS.get(dtype.kind, dtype.kind), dtype.itemsize) == (self.kind, self.size)

    def _address(self, argument: object) -> int:
        if not isinstance(argument, np.ndarray):
            raise LaunchError(f"is {type(argument).__name__}, the kernel takes {self}")
        # Bytes may be read as anything, and anything as bytes.
        if 1 not in (argument.itemsize, self.size or 1) and not self._fits(argument.dtype):
            raise LaunchError(f"is an array of {argument.dtype}, the kernel takes {self}")
        if not argument.flags.c_contiguous:
            raise LaunchError("is an array that is not contiguous")
        if memory.memory_of(argument) is None:
            raise LaunchError("is not in device memory: use device.array or device.empty")
        return int(argument.ctypes.data)
