"""The matrices of plain safetensors files, one at a time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unweight.containers.base import FileSource, TensorEntry
from unweight.containers.safetensors import read_index
from unweight_codecs.bounded.float_words import Values, may_change, values_of
from unweight_codecs.errors import FormatError, quoted
from unweight_codecs.tensor_spec import dtype_named


@dataclass(frozen=True, slots=True)
class Matrix:
    """A tensor that may change, and the file it is in."""

    file: Path
    entry: TensorEntry

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.entry.spec.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor, which may have more than two dimensions."""
        return self.entry.spec.shape

    @property
    def word_bytes(self) -> int:
        """Bytes of a weight in the file."""
        return dtype_named(self.entry.spec.dtype).bits // 8

    def read(self) -> Values:
        """Return the weights, (rows, columns): all dimensions but the last are rows.

        Raises FormatError when one of them is not finite: most methods have no code for those.
        """
        words = np.empty(self.entry.nbytes, np.uint8)
        with FileSource(self.file) as source:
            source.read_into(self.entry.offset, words.data)
        values = values_of(words, self.entry.spec.dtype).reshape(-1, self.shape[-1])
        if not np.isfinite(values).all():
            raise FormatError(
                f"{self.file}: tensor {quoted(self.name)} holds weights that are not finite",
                hint="there is nothing to compare in such a model",
            )
        return values


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is in the files of a model.

    Attributes:
        matrices: The tensors that may change, in file order.
        file_bytes: Sizes of the files.
        other_bytes: Sizes of all other tensors.
        weights: Number of elements of all tensors.
    """

    matrices: tuple[Matrix, ...]
    file_bytes: int
    other_bytes: int
    weights: int

    @property
    def matrix_bytes(self) -> int:
        """Sizes of the tensors that may change."""
        return sum(matrix.entry.nbytes for matrix in self.matrices)

    @property
    def matrix_weights(self) -> int:
        """Number of elements of the tensors that may change."""
        return sum(math.prod(matrix.shape) for matrix in self.matrices)


def take_inventory(files: Iterable[Path]) -> Inventory:
    """Read the headers of safetensors files."""
    matrices: list[Matrix] = []
    file_bytes = other_bytes = weights = 0
    for file in files:
        with FileSource(file) as source:
            index = read_index(source)
        file_bytes += index.size
        for entry in index.tensors:
            weights += entry.spec.elements
            if may_change(entry.spec) and entry.nbytes:
                matrices.append(Matrix(file, entry))
            else:
                other_bytes += entry.nbytes
    return Inventory(tuple(matrices), file_bytes, other_bytes, weights)
