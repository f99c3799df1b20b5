"""Reading Unweight files."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from unweight.archive.header import read_manifest
from unweight.containers.base import ContainerIndex, FileSource, TensorEntry
from unweight.containers.registry import read_index
from unweight.manifest import MANIFEST_KEY, Manifest
from unweight_codecs.accelerators import SPAN_CHUNKS, CodedSpan, PayloadHead, decode_on_host
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError, UsageError, quoted
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload import head as payload_head
from unweight_codecs.pipeline import Pipeline, pipeline_from_dict

STORED_SPAN = 1 << 21


def is_archive(index: ContainerIndex) -> bool:
    """Whether a container is an Unweight file."""
    return MANIFEST_KEY in (index.metadata or {})


def is_archive_at(path: Path) -> bool:
    """Whether there is an Unweight file at a path; raises FormatError for what is no container."""
    with FileSource(path) as source:
        return is_archive(read_index(source))


class ArchiveReader:
    """An open Unweight file. All errors name the file, and the tensor where there is one."""

    def __init__(self, path: Path) -> None:
        """Open and check the header; see ``read_manifest`` for the errors."""
        self.path = path
        self._heads: dict[str, PayloadHead] = {}
        self._source = FileSource(path)
        try:
            self.index: ContainerIndex = read_index(self._source)
            self.manifest: Manifest = read_manifest(self.index)
            self._check_padding()
            self._pipelines = [self._pipeline(data) for data in self.manifest.pipelines]
            self._check_modes()
        except UnweightError as error:
            self.close()
            raise self._located(error) from None

    def _check_padding(self) -> None:
        """Check what no digest covers: only zeros lie between tensors and nothing after them."""
        *between, (_, surplus) = self.index.gaps()
        if surplus:
            raise FormatError(f"{surplus} bytes after the last tensor belong to none")
        for offset, length in between:
            if any(self._source.read_at(offset, length)):
                raise IntegrityError(f"the padding at byte {offset} is damaged: it is not zero")

    def _check_modes(self) -> None:
        """Check that exactly the tensors with an error bound have pipelines that are not exact."""
        for name, coded in self.manifest.coded.items():
            if self._pipelines[coded.pipeline].is_exact == bool(coded.epsilon):
                raise IntegrityError(
                    f"tensor {quoted(name)}: its pipeline and its error bound are of two modes"
                )

    def _pipeline(self, data: object) -> Pipeline:
        try:
            return pipeline_from_dict(data)  # type: ignore[arg-type]
        except (KeyError, TypeError, UsageError) as error:
            raise IntegrityError(
                f"the manifest names an impossible pipeline: {quoted(error)}"
            ) from None

    def _located(self, error: UnweightError) -> UnweightError:
        if error.message.startswith(f"{self.path}:"):
            return error
        return type(error)(f"{self.path}: {error.message}", hint=error.hint)

    def tensors(self) -> list[tuple[TensorEntry, TensorEntry]]:
        """Return pairs of (tensor as it was, tensor as it is here), in source file order."""
        return list(zip(self.manifest.source.tensors, self.index.tensors, strict=True))

    def is_coded(self, name: str) -> bool:
        """Whether a tensor is coded rather than stored unchanged."""
        return name in self.manifest.coded

    def pipeline_name(self, name: str) -> str:
        """Return the name of the pipeline that coded a tensor, "" for a stored one."""
        coded = self.manifest.coded.get(name)
        return self._pipelines[coded.pipeline].name if coded else ""

    def head(self, source: TensorEntry, here: TensorEntry) -> PayloadHead:
        """Read and check the head of a coded tensor; sizes are bounded by the file's."""
        found = self._heads.get(source.spec.name)
        if found is None:
            found = self._heads[source.spec.name] = self._read_head(source, here)
        return found

    def _read_head(self, source: TensorEntry, here: TensorEntry) -> PayloadHead:
        try:
            pipeline = self._pipelines[self.manifest.coded[source.spec.name].pipeline]
            start = self._source.read_at(here.offset, min(here.nbytes, 64))
            limit = min(here.nbytes, pipeline.head_limit(source.spec))
            length = payload_head.peek_length(start, limit)
            head = self._source.read_at(here.offset, length)
            return PayloadHead.parse(pipeline, head, source.spec, here.nbytes, here.offset)
        except UnweightError as error:
            error.message = f"tensor {quoted(source.spec.name)}: {error.message}"
            raise self._located(error) from None

    def spans(self, head: PayloadHead, chunks: int = SPAN_CHUNKS) -> list[CodedSpan]:
        """Return a coded tensor as spans of ``chunks`` chunks, not yet decoded."""
        return head.spans(self._source.read_into, chunks, self._failed(head))

    def span(self, head: PayloadHead, first_chunk: int, chunks: int = SPAN_CHUNKS) -> CodedSpan:
        """Return ``chunks`` chunks from ``first_chunk``, fewer at the end, not yet decoded."""
        return head.span(self._source.read_into, first_chunk, chunks, self._failed(head))

    def _failed(self, head: PayloadHead) -> Callable[[UnweightError], UnweightError]:
        return lambda error: self._in_tensor(error, head)

    def decode(self, head: PayloadHead, first_chunk: int, chunks: int = SPAN_CHUNKS) -> Bytes:
        """Return the original bytes of ``chunks`` chunks from ``first_chunk``, fewer at the end."""
        return decode_on_host(self.span(head, first_chunk, chunks)).words

    def streams(self, head: PayloadHead, chunk: int) -> dict[str, Bytes]:
        """Return the streams of one chunk, one value per word where they are no escapes."""
        coded = self.span(head, chunk, 1)
        span = coded.read(buffers.empty(coded.coded_bytes))
        pack = head.pipeline.stages[-1]
        try:
            for stage in head.pipeline.stages:
                stage.prepare(span, head.model)
            pack.decode(span, head.model)
        except UnweightError as error:
            raise self._in_tensor(error, head) from None
        return span.streams | {"symbol": span.streams["symbol"][: span.count]}

    def _in_tensor(self, error: UnweightError, head: PayloadHead) -> UnweightError:
        error.message = f"tensor {quoted(head.model.spec.name)}: {error.message}"
        return self._located(error)

    def read_stored(self, here: TensorEntry, start: int, length: int) -> Bytes:
        """Return ``length`` bytes of a stored tensor from byte ``start``."""
        data = buffers.empty(length)
        self._source.read_into(here.offset + start, data.data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
