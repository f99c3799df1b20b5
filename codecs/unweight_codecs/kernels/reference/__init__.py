"""The definitions of the kernels, by topic: what the formats mean, and the way without C."""

from unweight_codecs.kernels.reference.fields import FieldReference
from unweight_codecs.kernels.reference.levels import LevelReference
from unweight_codecs.kernels.reference.planes import PlaneReference
from unweight_codecs.kernels.reference.rans import RansReference
from unweight_codecs.kernels.reference.tables import TableReference


class ReferenceKernels(
    TableReference, RansReference, FieldReference, PlaneReference, LevelReference
):
    """See ``Kernels`` for the contracts."""

    name = "reference"


__all__ = ["ReferenceKernels"]
