"""Tensors of an Unweight file as report rows."""

from unweight.archive import ArchiveReader
from unweight.operations.report import TensorReport
from unweight_codecs.presets import STORED

__all__ = ["STORED", "tensor_rows"]


def tensor_rows(archive: ArchiveReader) -> tuple[TensorReport, ...]:
    """Return one row per tensor, in source file order."""
    rows = []
    for source, here in archive.tensors():
        spec = source.spec
        pipeline = archive.pipeline_name(spec.name) if archive.is_coded(spec.name) else STORED
        coded = archive.manifest.coded.get(spec.name)
        errors = (coded.epsilon, coded.error, coded.max_error) if coded else ()
        rows.append(
            TensorReport(
                spec.name, spec.dtype, spec.shape, pipeline, source.nbytes, here.nbytes, *errors
            )
        )
    return tuple(rows)
