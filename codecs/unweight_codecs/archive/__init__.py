"""Unweight files: the only place that knows at which offset what lies."""

from unweight_codecs.archive.reader import ArchiveReader, is_archive, is_archive_at
from unweight_codecs.archive.writer import ArchiveWriter

__all__ = ["ArchiveReader", "ArchiveWriter", "is_archive", "is_archive_at"]
