"""A pipeline: five stages in a fixed order, applied to the spans of one tensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unweight_codecs import fused
from unweight_codecs.bounded.error_bound import ErrorBound
from unweight_codecs.codec import SLOTS_IN_ORDER, Stage, TensorView
from unweight_codecs.errors import IntegrityError, UsageError
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.kernels.operands import GROUP
from unweight_codecs.layouts import WordLayout, layout_of
from unweight_codecs.model import BoundedModel, TensorModel, max_streams
from unweight_codecs.payload import head as payload_head
from unweight_codecs.payload.directory import (
    MIN_RECORD_BYTES,
    chunk_lengths,
    directory_dtype,
    record_bytes,
)
from unweight_codecs.payload.pack import Pack
from unweight_codecs.registry import create_codec
from unweight_codecs.span import CheckResult, Span
from unweight_codecs.tensor_spec import TensorSpec

MAX_TABLES_BYTES = 1 << 17  # per stream: 127 tables of at most 513 bytes, and room for the rest
SCALE_WORDS = 8  # at least so many words share a byte of scales: there are 16 rows and columns


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages by slot, in order, and a name for people. Build one with ``pipeline_of``."""

    name: str
    stages: tuple[Stage, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the pipeline as the manifest stores it."""
        return {"name": self.name, "stages": [stage.to_dict() for stage in self.stages]}

    @property
    def _pack(self) -> Pack:
        """What cuts tensors into chunks; a stage of another kind in the slot has no say in that."""
        stage = self.stages[-1]
        return stage if isinstance(stage, Pack) else Pack()

    def chunk_words(self, layout: WordLayout) -> int:
        """Return the words per chunk for a tensor."""
        return self._pack.chunk_words(layout)

    @property
    def is_exact(self) -> bool:
        """Whether every word is decoded to what it was."""
        return self._bound.mode != "bounded"

    @property
    def _bound(self) -> Stage:
        return self.stages[SLOTS_IN_ORDER.index("bound")]

    @property
    def stage_types(self) -> tuple[type[Stage], ...]:
        """The classes of the stages in order, which is what fused kernels are found by."""
        return tuple(map(type, self.stages))

    def fit(self, tensor: TensorView, epsilon: float = 0.0) -> TensorModel:
        """Let every stage decide its part of the model of a tensor.

        ``epsilon``, the relative error allowed, is above 0 for pipelines that are not exact.
        """
        model = self._model(tensor.spec, tensor.layout, tensor.chunk_words)
        for stage in self.stages:
            stage.fit(tensor, model, epsilon)
        model.sections = tuple(stage.write(model) for stage in self.stages)
        return model

    def encode(self, span: Span, model: TensorModel) -> None:
        """Turn the words of a span into chunks; ``check`` then compares what they decode to."""
        for stage in self.stages:
            stage.prepare(span, model)
        done = fused.encode(self.stage_types, span, model)
        for stage in self.stages[done:]:
            stage.encode(span, model)

    def check(self, span: Span, model: TensorModel, epsilon: float = 0.0) -> CheckResult:
        """Decode what ``encode`` made of a span and return what that gives.

        Raises IntegrityError if a bit differs, or with an error bound if ``epsilon`` does not hold.
        """
        decoded = span.copy_empty()
        self.decode(decoded, model)
        # Compared here, whatever stage is in the slot: none can switch that off.
        if self.is_exact:
            return BitExact().check(span, decoded, model, epsilon)
        result = ErrorBound().check(span, decoded, model, epsilon)
        if type(self._bound) is not ErrorBound:  # it may refuse what is within the bound
            self._bound.check(span, replace(decoded, words=decoded.words.copy()), model, epsilon)
        return result

    def decode(self, span: Span, model: TensorModel) -> None:
        """Turn the chunks of a span into words."""
        for stage in self.stages:
            stage.prepare(span, model)
        if fused.decode(self.stage_types, span, model):
            return
        for stage in reversed(self.stages):
            stage.decode(span, model)

    def write_head(self, model: TensorModel, directory: NDArray[np.void]) -> bytes:
        """Return the payload's head."""
        return payload_head.write_head(model.sections, directory.tobytes())

    def head_length(self, model: TensorModel) -> int:
        """Return the length of the payload's head."""
        directory = model.chunks * directory_dtype(model).itemsize
        return payload_head.head_length(model.sections, directory)

    def head_limit(self, spec: TensorSpec) -> int:
        """Return the longest head that a tensor can need: tables, scales, smallest chunks."""
        layout = layout_of(spec)
        streams = max_streams(layout)
        sections = streams * MAX_TABLES_BYTES + layout.words // SCALE_WORDS
        return sections + -(-layout.words // GROUP) * record_bytes(streams)

    def read_head(
        self, head: bytes, spec: TensorSpec, payload_bytes: int
    ) -> tuple[TensorModel, NDArray[np.void]]:
        """Rebuild the model and the directory of a payload of ``payload_bytes`` bytes.

        Raises IntegrityError unless head, chunks and payload fit each other exactly.
        """
        parsed = payload_head.parse_head(head)
        model = self._read_sections(parsed.sections, spec, len(parsed.directory))
        record = directory_dtype(model)
        size = model.chunks * record.itemsize
        padding = parsed.directory[size:]  # what aligns the head to 16 bytes
        if len(parsed.directory) < size or len(padding) >= payload_head.ALIGNMENT or any(padding):
            raise IntegrityError("the chunk directory has a wrong size")
        directory = np.frombuffer(parsed.directory, record, model.chunks)
        if parsed.length + int(chunk_lengths(directory).sum()) != payload_bytes:
            raise IntegrityError("a coded tensor has another length than its directory says")
        return model, directory

    def as_decoded(self, model: TensorModel) -> TensorModel:
        """Return the model as a decoder will rebuild it from the head; to check chunks with."""
        rows = model.chunks * directory_dtype(model).itemsize
        return self._read_sections(model.sections, model.spec, rows)

    def _model(self, spec: TensorSpec, layout: WordLayout, chunk_words: int) -> TensorModel:
        bounded = None if self.is_exact else BoundedModel()
        names = self._pack.coder_names
        return TensorModel(spec, layout, chunk_words, coder_names=names, bounded=bounded)

    def _read_sections(
        self, sections: Sequence[bytes], spec: TensorSpec, directory_bytes: int
    ) -> TensorModel:
        layout = layout_of(spec)
        model = self._model(spec, layout, self.chunk_words(layout))
        # The chunk size comes first: other stages may need the number of chunks.
        for stage, section in reversed(list(zip(self.stages, sections, strict=True))):
            stage.read(section, model)
            # Before any stage allocates by the number of words: each chunk takes a directory row.
            if model.chunks * MIN_RECORD_BYTES > directory_bytes:
                raise IntegrityError("the chunk directory has a wrong size")
        return model


def pipeline_of(name: str, stages: Iterable[Stage]) -> Pipeline:
    """Check that the stages fill the five slots in order, and belong to one mode."""
    chosen = tuple(stages)
    slots = tuple(stage.slot for stage in chosen)
    if slots != SLOTS_IN_ORDER:
        raise UsageError(
            f"a pipeline has the stages {', '.join(SLOTS_IN_ORDER)} in this order, not {slots}"
        )
    exact, bounded = (
        [stage.label() for stage in chosen if stage.mode == mode] for mode in ("exact", "bounded")
    )
    if exact and bounded:
        raise UsageError(
            f"the stages {', '.join(exact)} code exactly, {', '.join(bounded)} within an error "
            "bound: a pipeline cannot have both"
        )
    return Pipeline(name, chosen)


def pipeline_from_dict(data: Mapping[str, Any]) -> Pipeline:
    """Rebuild a pipeline from the manifest; raises FormatError for an unknown codec."""
    stages = (create_codec(stage["name"], stage["configuration"]) for stage in data["stages"])
    return pipeline_of(str(data["name"]), stages)
