"""What is measured beside Unweight where it is installed, and the bandwidth of the device."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from typing import Final

import numpy as np

from benchmarks.gpu.data import Layer
from benchmarks.gpu.decoding import described
from benchmarks.gpu.figures import Figure, terabytes
from benchmarks.gpu.palettes import Peer
from unweight.units import percent
from unweight_codecs.errors import IntegrityError
from unweight_gpu.checking.comparison import Verifier
from unweight_gpu.device.cupy_device import CudaDevice
from unweight_gpu.device.failures import line_of
from unweight_gpu.device.interface import Array, Handle
from unweight_gpu.device.timing import Timer, Work
from unweight_gpu.palette.cuda import CudaBlas

COPY_BYTES: Final = 2 << 30
LEFT_OUT: Final = (
    "DFloat11 is left out: what it offers decodes inside the layers of whole models only"
)
_ANS_TYPES: Final = ("|u1", "<f2")  # how nvCOMP looks at the words: as bytes, as numbers

Note = Callable[[str], None]


def version(package: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def device_copy(device: CudaDevice, timer: Timer, nbytes: int = COPY_BYTES) -> Figure:
    """Copy memory of the device; bytes read and bytes written both count."""
    import cupy

    runtime: Handle = cupy.cuda.runtime
    source, target = (device.empty(nbytes, np.uint8) for _ in range(2))

    def copy() -> None:
        stream = cupy.cuda.get_current_stream().ptr
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(target.data.ptr, source.data.ptr, nbytes, kind, stream)

    rate = terabytes(2 * nbytes, timer.samples([copy]))
    return Figure("device copy", f"{nbytes >> 20} MiB, read and written", rate, "TB/s")


def peers(device: CudaDevice, note: Note) -> list[Peer]:
    """Return what multiplies plain words here; tells of what is missing."""
    found = list[Peer]()
    try:
        found.append(_Torch(device.number))
    except (ImportError, OSError, RuntimeError) as error:
        note(f"PyTorch is not measured: {line_of(error)}")
    found.append(_Cublas(device))
    return found


class _Torch:
    """PyTorch; its default stream is CuPy's, so events of either time it."""

    name = "torch BF16"

    def __init__(self, number: int) -> None:
        import torch

        self._torch: Handle = torch
        self._device = f"cuda:{number}"
        if not torch.cuda.is_available():
            raise ImportError("this PyTorch finds no CUDA device")

    def product(self, words: Array, x: Array, out: Array) -> Work:
        """Return what ``torch.nn.functional.linear`` calls, into memory that is there already."""
        weights, inputs, result = (self._shared(each) for each in (words, x, out))
        return partial(self._torch.mm, inputs, weights.t(), out=result)

    def _shared(self, words: Array) -> Handle:
        """Return the same memory as a tensor."""
        signed = words.view(np.int16)
        return self._torch.as_tensor(signed, device=self._device).view(self._torch.bfloat16)


class _Cublas:
    """cuBLAS through CuPy."""

    name = "cuBLAS BF16"

    def __init__(self, device: CudaDevice) -> None:
        self._blas = CudaBlas(device)

    def product(self, words: Array, x: Array, out: Array) -> Work:
        """Return ``cublasGemmEx``."""
        return partial(self._blas.matmul, words, x, out)


def nvcomp_ans(device: CudaDevice, timer: Timer, layer: Layer, note: Note) -> Iterator[Figure]:
    """Decode the layer with the ANS of nvCOMP, which leaves words as they were in memory."""
    try:
        nvcomp: Handle = importlib.import_module("nvidia.nvcomp")
    except ImportError as error:
        note(f"nvCOMP is not measured: {line_of(error)}")
        return
    for data_type in _ANS_TYPES:
        try:
            yield _nvcomp_ans(nvcomp, device, timer, layer, data_type)
        except Exception as error:  # whatever a closed library raises, the rest can be measured
            note(f"nvCOMP ANS of {data_type} is not measured: {line_of(error)}")


def _nvcomp_ans(
    nvcomp: Handle, device: CudaDevice, timer: Timer, layer: Layer, data_type: str
) -> Figure:
    import cupy

    parts = [words.reshape(-1).view(np.uint8) for words in layer.matrices.values()]
    words = device.array(np.concatenate(parts))
    out = device.empty(words.nbytes, np.uint8)
    with cupy.cuda.Device(device.number):
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        with stream:
            codec = nvcomp.Codec(
                algorithm="ANS",
                device_id=device.number,
                cuda_stream=stream.ptr,
                data_type=data_type,
            )
            encoded = codec.encode(nvcomp.as_array(words.view(np.dtype(data_type)), stream.ptr))
            config = codec.decompression_config(encoded)
            decode = partial(codec.decode, encoded, "|u1", out=out, decompression_config=config)
            seconds = timer.samples([decode])
            stream.synchronize()
    if Verifier(device).first_difference(words, out) is not None:
        raise IntegrityError("it decodes to other words")
    part = percent(int(encoded.buffer_size), words.nbytes)
    size = f"{data_type}, {part} of {described(layer)}"
    return Figure("nvCOMP ANS", size, terabytes(layer.nbytes, seconds), "TB/s")
