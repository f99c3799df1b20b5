"""Binding of the C kernels. ``ctypes`` releases the GIL while they run."""

from unweight_codecs.kernels.native.coding import NativeCoding
from unweight_codecs.kernels.native.fields import NativeFields
from unweight_codecs.kernels.native.levels import NativeLevels
from unweight_codecs.kernels.native.planes import NativePlanes


class NativeKernels(NativeCoding, NativeFields, NativePlanes, NativeLevels):
    """The C kernels for one instruction set. See ``Kernels`` for the contracts.

    What has no version in C is inherited from the reference.
    """


__all__ = ["NativeKernels"]
