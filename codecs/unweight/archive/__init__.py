"""Unweight files: the only place that knows at which offset what lies."""

from unweight.archive.reader import ArchiveReader, is_archive, is_archive_at
from unweight.archive.writer import ArchiveWriter

__all__ = ["ArchiveReader", "ArchiveWriter", "is_archive", "is_archive_at"]
