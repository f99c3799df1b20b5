"""Tensors of one file, compressed or not, read one at a time."""

import weakref
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from unweight.archive import ArchiveReader, is_archive
from unweight.containers.base import FileSource, TensorEntry
from unweight.containers.registry import read_index
from unweight.numpy_dtypes import as_array
from unweight.paths import StrPath, path_of
from unweight_codecs.accelerators import CpuEngine
from unweight_codecs.errors import IntegrityError, UsageError, quoted
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.tensor_spec import TensorSpec

_FRAMEWORKS: Final = ("np", "numpy")


class safe_open:
    """An open file of tensors, with the call signatures of the package safetensors.

    Reads safetensors and GGUF files, compressed by Unweight or not. Only what is asked for is read
    and decoded. Of a compressed file every checksum and the digest of every tensor is compared
    before the tensor is handed out. Use it in a ``with`` statement, or call ``close``.
    """

    def __init__(
        self, path: StrPath, framework: str = "np", device: str = "cpu", *, threads: int = 0
    ) -> None:
        """Open a file.

        Args:
            path: The file.
            framework: Whose arrays to return: ``"np"`` or ``"numpy"``.
            device: Where the arrays are to be: ``"cpu"``.
            threads: Threads to decode with; 0 means as many as the process may use.

        Raises:
            UsageError: Arguments that make no sense.
            FormatError: Not a supported file.
            IntegrityError: The header of a compressed file is damaged.
            ResourceError: The file cannot be read.
        """
        if framework not in _FRAMEWORKS:
            raise UsageError(
                f"must be one of {', '.join(_FRAMEWORKS)}, not {quoted(framework)}",
                parameter="framework",
            )
        if device != "cpu":
            raise UsageError(
                f"must be cpu for arrays of NumPy, not {quoted(device)}", parameter="device"
            )
        file = path_of(path, "path")
        self._path = file
        engine = CpuEngine(threads)
        with FileSource(file) as source:
            is_compressed = is_archive(read_index(source))
        self._reader: _Reader = (
            _CompressedFile(ArchiveReader(file), engine)
            if is_compressed
            else _PlainFile(FileSource(file))
        )
        self._specs = {spec.name: spec for spec in self._reader.specs()}
        # Also where the object is forgotten without being closed.
        self._close = weakref.finalize(self, self._reader.close)

    def keys(self) -> list[str]:
        """Return the names of all tensors, sorted."""
        return sorted(self._specs)

    def offset_keys(self) -> list[str]:
        """Return the names of all tensors, in the order of the file."""
        return list(self._specs)

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata of the original file; None where it has none."""
        metadata = self._reader.metadata
        return None if metadata is None else dict(metadata)

    def get_dtype(self, name: str) -> str:
        """Return the dtype of a tensor, as the file spells it: ``"BF16"``, ``"Q4_K"``."""
        return self._spec(name).dtype

    def get_shape(self, name: str) -> list[int]:
        """Return the shape of a tensor in elements; of GGUF rows are the last dimension."""
        return list(self._spec(name).shape)

    def get_tensor(self, name: str) -> NDArray[Any]:
        """Return a tensor as an array of its own.

        BF16 and floats of 8 bits are dtypes of the package ml_dtypes. Quantised blocks are bytes,
        of shape (…, bytes of a row).

        Raises:
            UsageError: There is no such tensor, or the file is closed.
            IntegrityError: The tensor is damaged.
            ResourceError: The package ml_dtypes is needed and missing.
            FormatError: NumPy has no such dtype: those of less than 8 bits.
        """
        spec = self._spec(name)
        # A dtype that is not to be had is found before anything is decoded.
        as_array(np.zeros(0, np.uint8), TensorSpec(name, spec.dtype, (0,)))
        return as_array(self._reader.read(name), spec)

    def _spec(self, name: str) -> TensorSpec:
        if not self._close.alive:
            raise UsageError(f"{self._path}: is closed")
        if name not in self._specs:
            raise UsageError(f"{self._path}: no tensor {quoted(name)}")
        return self._specs[name]

    def close(self) -> None:
        """Close the file. Arrays that were read stay valid."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Reader(Protocol):
    """A file whose tensors can be read by name."""

    metadata: dict[str, str] | None

    def specs(self) -> list[TensorSpec]:
        """Return the tensors of the original, in the order of the file."""

    def read(self, name: str) -> Bytes:
        """Return the bytes of a tensor of the original."""

    def close(self) -> None:
        """Close the file."""


class _PlainFile:
    """A container that Unweight did not write. It has no digests."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        index = read_index(source)
        self._entries = {entry.spec.name: entry for entry in index.tensors}
        self.metadata = index.metadata

    def specs(self) -> list[TensorSpec]:
        return [entry.spec for entry in self._entries.values()]

    def read(self, name: str) -> Bytes:
        entry = self._entries[name]
        words = np.empty(entry.nbytes, np.uint8)
        self._source.read_into(entry.offset, words.data)
        return words

    def close(self) -> None:
        self._source.close()


class _CompressedFile:
    """A file that Unweight wrote: what is read is what the digest of each tensor says."""

    def __init__(self, archive: ArchiveReader, engine: CpuEngine) -> None:
        self._archive = archive
        self._engine = engine
        self._entries = {source.spec.name: (source, here) for source, here in archive.tensors()}
        self.metadata = archive.manifest.source.metadata

    def specs(self) -> list[TensorSpec]:
        return [source.spec for source, _ in self._entries.values()]

    def read(self, name: str) -> Bytes:
        source, here = self._entries[name]
        if self._archive.is_coded(name):
            words = self._decoded(source, here)
        else:
            words = self._archive.read_stored(here, 0, here.nbytes)
        if xxhash.xxh3_64_hexdigest(words.data) != self._archive.manifest.digest_of(name):
            raise IntegrityError(
                f"{self._archive.path}: tensor {quoted(name)}: wrong digest",
                hint="the file is damaged: download or copy it again",
            )
        return words

    def _decoded(self, source: TensorEntry, here: TensorEntry) -> Bytes:
        head = self._archive.head(source, here)
        spans = self._archive.spans(head, self._engine.span_chunks)
        words, done = np.empty(source.nbytes, np.uint8), 0
        for piece in next(self._engine.decode([spans])):
            words[done : done + piece.words.size] = piece.words
            done += piece.words.size
        return words

    def close(self) -> None:
        self._engine.__exit__(None, None, None)
        self._archive.close()
