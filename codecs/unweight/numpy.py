"""Files of tensors as NumPy arrays, as ``safetensors.numpy`` reads them."""

from typing import Any

from numpy.typing import NDArray

from unweight.paths import StrPath
from unweight.tensors import safe_open


def load_file(path: StrPath, *, threads: int = 0) -> dict[str, NDArray[Any]]:
    """Return all tensors of a safetensors or GGUF file, compressed or not, by name.

    Every checksum and digest of a compressed file is compared; see ``safe_open`` for dtypes and
    errors. ``threads`` are those to decode with, 0 means as many as the process may use.
    """
    with safe_open(path, threads=threads) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
