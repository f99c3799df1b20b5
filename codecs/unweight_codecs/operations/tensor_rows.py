"""Tensors of an Unweight file as report rows."""

from unweight_codecs.archive import ArchiveReader
from unweight_codecs.operations.report import TensorReport

STORED = "stored"


def tensor_rows(archive: ArchiveReader) -> tuple[TensorReport, ...]:
    """Return one row per tensor, in source file order."""
    rows = []
    for source, here in archive.tensors():
        spec = source.spec
        pipeline = archive.pipeline_name(spec.name) or STORED
        rows.append(
            TensorReport(spec.name, spec.dtype, spec.shape, pipeline, source.nbytes, here.nbytes)
        )
    return tuple(rows)
