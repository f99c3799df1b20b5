"""Writing Unweight files: data first, the header into the space reserved for it last."""

import sys
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from unweight.archive.header import min_header, write_header
from unweight.archive.host import host_of
from unweight.containers.base import ContainerIndex, TensorEntry
from unweight.containers.strict_json import check_complexity
from unweight.manifest import MAX_SPARE_PIPELINES, CodedTensor, Manifest
from unweight.output import write_all
from unweight_codecs.errors import FormatError
from unweight_codecs.model import TensorModel
from unweight_codecs.payload.head import peek_length
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.span import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST_NUMBER = sys.float_info.max  # in JSON
MIN_CODED_BYTES = 4096  # below, head, table and lane states eat most of what coding saves


class ArchiveWriter:
    """Writes tensors in source file order. Call ``store`` or ``begin``/``add``/``end`` for each."""

    def __init__(
        self,
        file: BinaryIO,
        source: ContainerIndex,
        pipelines: list[Pipeline],
        padding: bytes = b"",
        *,
        small_header: bool = False,
        bounded: bool = False,
    ) -> None:
        """Reserve the header: the largest it can become is when every tensor is coded.

        ``padding`` are the bytes of the source that belong to no tensor, in file order.
        ``small_header`` takes the time to compress a large source header well, ``bounded`` leaves
        room for the errors of tensors that are not exact. Raises UnweightError when no reader would
        accept the header.
        """
        self._file = file
        self._source = source
        self._small_header = small_header
        self._pipelines = tuple(pipeline.to_dict() for pipeline in pipelines)
        self._coded: dict[str, CodedTensor] = {}
        self._stored: dict[str, str] = {}
        self._sizes: list[int] = []
        blank = "0" * 16
        errors = (_LONGEST_NUMBER,) * 3 if bounded else ()
        largest = CodedTensor(max(0, len(pipelines) - 1), blank, *errors)
        coded = {t.spec.name: largest for t in source.tensors if t.nbytes >= MIN_CODED_BYTES}
        stored = {t.spec.name: blank for t in source.tensors if t.nbytes < MIN_CODED_BYTES}
        self._alignment = host_of(source).alignment(source)
        self._padding = padding if any(padding) else b""
        filled = self._manifest("0" * 64, coded, stored, "0" * 64 if bounded else "")
        if len(pipelines) > len(source.tensors) + MAX_SPARE_PIPELINES:
            raise FormatError(f"{len(pipelines)} pipelines for {len(source.tensors)} tensors")
        check_complexity(filled.to_json(inline_header=False).encode(), "the manifest")
        needed = len(write_header(filled, [t.nbytes for t in source.tensors]))
        self._reserved = max(needed, min_header(source))
        file.seek(self._reserved)
        self._start = 0
        self._directory: list[NDArray[np.void]] = []
        self._model: TensorModel | None = None
        self._pipeline: Pipeline | None = None

    def store(self, name: str, digest: str) -> None:
        """Register a tensor whose bytes the caller writes through ``write``."""
        self._align()
        self._stored[name] = digest
        self._sizes.append(0)

    def write(self, data: memoryview | bytes) -> None:
        """Append bytes of the tensor registered last by ``store``."""
        write_all(self._file, data)
        self._sizes[-1] += len(data)

    def begin(self, pipeline: Pipeline, model: TensorModel) -> None:
        """Start a coded tensor: leave room for its head."""
        self._start = self._align()
        self._pipeline, self._model, self._directory = pipeline, model, []
        self._file.seek(self._start + pipeline.head_length(model))

    def add(self, span: Span) -> None:
        """Append the chunks of an encoded span."""
        write_all(self._file, span.coded.data)
        self._directory.append(span.directory)

    def end(self, tensor: CodedTensor, limit: int) -> bool:
        """Write the head. If the result takes ``limit`` bytes or more, undo it and return False."""
        if self._model is None or self._pipeline is None:
            raise RuntimeError("end() without begin()")
        stop = self._file.tell()
        if stop - self._start >= limit:
            self._file.seek(self._start)
            self._file.truncate()
            return False
        head = self._pipeline.write_head(self._model, np.concatenate(self._directory))
        self._check_head(head, stop - self._start)
        self._file.seek(self._start)
        write_all(self._file, head)
        self._file.seek(stop)
        self._coded[self._model.spec.name] = tensor
        self._sizes.append(stop - self._start)
        return True

    def _check_head(self, head: bytes, size: int) -> None:
        """Read a head as a reader will, before anything relies on it."""
        if self._model is None or self._pipeline is None:
            raise RuntimeError("no tensor has begun")
        spec = self._model.spec
        peek_length(head, min(size, self._pipeline.head_limit(spec)))
        self._pipeline.read_head(head, spec, size)

    def _manifest(
        self,
        sha256: str,
        coded: dict[str, CodedTensor],
        stored: dict[str, str],
        restored_sha256: str,
    ) -> Manifest:
        return Manifest(
            self._source,
            sha256,
            self._pipelines,
            coded,
            stored,
            self._padding,
            restored_sha256=restored_sha256,
            small_header=self._small_header,
        )

    def _align(self) -> int:
        """Move to where a tensor may begin, and return that position."""
        position = self._file.tell() - self._reserved
        self._file.seek(self._reserved + -(-position // self._alignment) * self._alignment)
        return self._file.tell()

    def finish(self, source_sha256: str, restored_sha256: str = "") -> int:
        """Write the header; returns the size of the file.

        ``restored_sha256`` is the digest of the file that decoding gives, where it is another one.
        """
        size = self._file.tell()
        self._file.truncate(size)  # zeros that were only skipped become part of the file
        other = restored_sha256 if any(tensor.epsilon for tensor in self._coded.values()) else ""
        manifest = self._manifest(source_sha256, self._coded, self._stored, other)
        header = write_header(manifest, self._sizes, self._reserved)
        self._file.seek(0)
        write_all(self._file, header)
        return size

    def errors(self, entry: TensorEntry) -> tuple[float, ...]:
        """Return the allowed, relative and largest error of a tensor; nothing for an exact one."""
        coded = self._coded.get(entry.spec.name)
        return (coded.epsilon, coded.error, coded.max_error) if coded else ()

    @property
    def sizes(self) -> list[int]:
        """Bytes that each tensor takes, in source file order."""
        return self._sizes
