"""What was restored against the original: every bit, or the error where one is allowed."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from unweight.archive import ArchiveReader
from unweight.containers.base import FileSource, TensorEntry
from unweight.operations.report import TensorReport
from unweight_codecs.accelerators import Piece
from unweight_codecs.errors import IntegrityError, QualityGateError, quoted
from unweight_codecs.kernels.operands import Bytes


class OriginalComparison:
    """Compares restored pieces with the original file; measures the error of changed tensors."""

    def __init__(self, archive: ArchiveReader, original: Path) -> None:
        """Open the original; raises IntegrityError if it is not there or of another size."""
        if not original.exists():
            raise IntegrityError(f"{archive.path}: there is no {original} to compare it with")
        self._archive = archive
        self._original = FileSource(original)
        self._at = self._end = 0
        self._where = "the header"
        self._tensor: TensorEntry | None = None
        self._sums = (0.0, 0.0, 0.0)
        self._whole = hashlib.sha256() if archive.manifest.epsilon else None
        self._errors: dict[str, tuple[float, float]] = {}
        expected = archive.manifest.source.size
        if self._original.size != expected:
            size = self._original.size
            self.close()
            raise IntegrityError(
                f"{original}: has {size} bytes, the file that was compressed had {expected}"
            )

    def enter(self, entry: TensorEntry) -> None:
        """A new tensor begins."""
        self.leave()
        self._end = entry.offset + entry.nbytes
        self._tensor, self._where = entry, f"tensor {quoted(entry.spec.name)}"

    def take(self, piece: Piece) -> None:
        """Compare the next bytes."""
        original = np.empty_like(piece.words)
        self._original.read_into(self._at, original.data)
        if self._whole is not None:
            self._whole.update(original.data)
        if self._tensor and self._allowed() and self._at < self._end:
            self._measure(piece, original, self._tensor.spec.dtype)
        else:
            self._compare(piece, original)
        self._at += original.size

    def _measure(self, piece: Piece, original: Bytes, dtype: str) -> None:
        try:
            square, error, largest = piece.squared_error(original, dtype)
        except IntegrityError as problem:
            raise IntegrityError(
                f"{self._archive.path}: differs from {self._original.path} in {self._where}: "
                f"{problem.message}"
            ) from None
        self._sums = self._sums[0] + square, self._sums[1] + error, max(self._sums[2], largest)

    def _compare(self, piece: Piece, original: Bytes) -> None:
        different = piece.first_difference(original)
        if different is None:
            return
        byte = self._at + different
        inside = byte - (self._tensor.offset if self._tensor else 0)
        raise IntegrityError(
            f"{self._archive.path}: differs from {self._original.path} in {self._where}, "
            f"first at its byte {inside} (byte {byte} of the file)"
        )

    def _allowed(self) -> float:
        coded = self._archive.manifest.coded.get(self._tensor.spec.name) if self._tensor else None
        return coded.epsilon if coded else 0.0

    def leave(self) -> None:
        """A tensor ends: check its error."""
        epsilon = self._allowed()
        if self._tensor is None or not epsilon:
            return
        square, error, largest = self._sums
        relative = math.sqrt(error / square) if square else math.sqrt(error)
        if not relative <= epsilon:
            raise QualityGateError(
                f"{self._archive.path}: {self._where} has the relative error {relative:.6g}, "
                f"allowed is {epsilon:.6g}",
                hint="is this the file that was compressed?",
            )
        self._errors[self._tensor.spec.name] = relative, largest
        self._tensor, self._sums = None, (0.0, 0.0, 0.0)

    def finish(self) -> None:
        """The file ends: what was compared must be the original itself, not something near it."""
        self.leave()
        expected = self._archive.manifest.source_sha256
        if self._whole is not None and self._whole.hexdigest() != expected:
            raise IntegrityError(
                f"{self._original.path}: is not the file that was compressed: another SHA-256",
                hint=f"the original has {expected}",
            )

    def measured(self, row: TensorReport) -> TensorReport:
        """Return a row with the errors that were measured."""
        found = self._errors.get(row.name)
        return replace(row, error=found[0], max_error=found[1]) if found else row

    def close(self) -> None:
        """Close the original."""
        self._original.close()
