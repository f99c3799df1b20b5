"""Which file a checkpoint is: the SHA-256 of its original."""

import hashlib
from pathlib import Path
from typing import Final

from unweight.archive import ArchiveReader, is_archive_at
from unweight.containers.base import FileSource
from unweight.operations.progress import NoProgress, Progress

_READ_BYTES: Final = 1 << 20
_SILENT: Final = NoProgress()


def original_sha256(path: Path, progress: Progress = _SILENT) -> str:
    """Return the SHA-256 of a file of weights, or of the one it was compressed from.

    ``progress`` is told of every byte that is read.
    """
    if is_archive_at(path):
        with ArchiveReader(path) as archive:
            return archive.manifest.source_sha256
    with FileSource(path) as source:
        whole = hashlib.sha256()
        for at in range(0, source.size, _READ_BYTES):
            data = source.read_at(at, min(_READ_BYTES, source.size - at))
            whole.update(data)
            progress.advance(len(data))
        return whole.hexdigest()
