"""Restore the original bytes of an Unweight file, in order and checked against every digest."""

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import xxhash

from unweight.archive import ArchiveReader
from unweight.archive.reader import STORED_SPAN
from unweight.containers.base import TensorEntry
from unweight_codecs.accelerators import CodedSpan, Engine, HostPiece, Piece
from unweight_codecs.errors import IntegrityError, quoted


def check_structure(archive: ArchiveReader) -> None:
    """Check the head of every coded tensor against what the file holds, before any output."""
    for source, here in archive.tensors():
        if archive.is_coded(source.spec.name):
            archive.head(source, here)


def restore(
    archive: ArchiveReader,
    engine: Engine,
    sink: Callable[[Piece], None],
    on_tensor: Callable[[TensorEntry], None] = lambda entry: None,
) -> None:
    """Hand the original file to ``sink``, piece by piece.

    ``on_tensor`` is called before the first piece of each tensor. Raises IntegrityError as soon as
    a chunk, a tensor or finally the whole file has a wrong checksum.
    """
    whole = hashlib.sha256()

    def emit(piece: Piece) -> None:
        whole.update(piece.words.data)
        sink(piece)

    emit(HostPiece(np.frombuffer(archive.manifest.source.header, np.uint8)))
    gaps = archive.manifest.gaps()
    emit(HostPiece(next(gaps)))
    decoded = engine.decode(_coded_spans(archive, engine.span_chunks))
    for source, here in archive.tensors():
        on_tensor(source)
        digest = xxhash.xxh3_64()
        coded = archive.is_coded(source.spec.name)
        for piece in next(decoded) if coded else _stored_pieces(archive, here):
            digest.update(piece.words.data)
            emit(piece)
        if digest.hexdigest() != archive.manifest.digest_of(source.spec.name):
            raise IntegrityError(
                f"{archive.path}: tensor {quoted(source.spec.name)}: wrong digest",
                hint="the file is damaged: download or copy it again",
            )
        emit(HostPiece(next(gaps)))
    if whole.hexdigest() != archive.manifest.expected_sha256:
        raise IntegrityError(
            f"{archive.path}: the restored file has another SHA-256 than it must have",
            hint="the file is damaged: download or copy it again",
        )


def _coded_spans(archive: ArchiveReader, span_chunks: int) -> Iterator[list[CodedSpan]]:
    """Yield the spans of every coded tensor, in order."""
    for source, here in archive.tensors():
        if archive.is_coded(source.spec.name):
            yield archive.spans(archive.head(source, here), span_chunks)


def _stored_pieces(archive: ArchiveReader, here: TensorEntry) -> Iterator[Piece]:
    for start in range(0, here.nbytes, STORED_SPAN):
        yield HostPiece(archive.read_stored(here, start, min(STORED_SPAN, here.nbytes - start)))
