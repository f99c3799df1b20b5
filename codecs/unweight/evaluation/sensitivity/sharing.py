"""A sensitivity file applied to a checkpoint: is it of this model, and does it know its tensors?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unweight.evaluation.model.digests import original_sha256
from unweight.evaluation.sensitivity.allocation import ProfiledTensor, allocate
from unweight.evaluation.sensitivity.sensitivity_file import SensitivityFile, read_sensitivity
from unweight.operations.compression_plan import CompressionPlan
from unweight.operations.progress import Progress
from unweight_codecs.bounded.float_words import may_change
from unweight_codecs.errors import FormatError, UsageError


@dataclass(frozen=True, slots=True)
class Sharing:
    """How an error bound is shared out among the tensors of a checkpoint.

    Attributes:
        sensitivity: What it goes by.
        matrices: Names of the tensors of the checkpoint that may be coded with an error.
    """

    sensitivity: SensitivityFile
    matrices: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the matrices that the profile lacks; they keep the common bound."""
        known = {tensor.name for tensor in self.sensitivity.tensors}
        return tuple(name for name in self.matrices if name not in known)

    @property
    def without_gradient(self) -> tuple[str, ...]:
        """Names of the matrices whose gradient was 0; they keep the common bound, too."""
        return tuple(tensor.name for tensor in self._profiled if not tensor.mean_squared_gradient)

    def bounds(self, epsilon: float) -> dict[str, float]:
        """Return a bound for every matrix that the profile knows; see ``allocate``.

        Tensors of the model that this checkpoint does not have, like those of its other shards, do
        not take part: their errors could not make up for larger ones here.
        """
        return allocate(self._profiled, epsilon)

    @property
    def _profiled(self) -> tuple[ProfiledTensor, ...]:
        names = set(self.matrices)
        return tuple(tensor for tensor in self.sensitivity.tensors if tensor.name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON-ready data."""
        return {
            "path": str(self.sensitivity.path),
            "matrices": len(self.matrices),
            "missing": list(self.missing),
            "without_gradient": list(self.without_gradient),
        }


def open_sharing(file: Path, plan: CompressionPlan, progress: Progress) -> Sharing:
    """Read a sensitivity file for a checkpoint that is about to be compressed.

    Raises FormatError for a file that cannot be used, UsageError when it is of another model.
    """
    sensitivity = read_sensitivity(file)
    if not any(tensor.is_weighable for tensor in sensitivity.tensors):
        raise FormatError(
            f"{file}: no matrix in it has a mean_squared_gradient above 0: nothing to go by",
            hint="profile the model on another text",
        )
    models = [path for path, _ in plan.job.models]
    _check_model(sensitivity, plan.job.source, models, progress)
    specs = [entry.spec for index in plan.indexes for entry in index.tensors]
    return Sharing(sensitivity, tuple(spec.name for spec in specs if may_change(spec)))


def _check_model(
    sensitivity: SensitivityFile, checkpoint: Path, models: list[Path], progress: Progress
) -> None:
    """Raise UsageError unless the files of weights are those that were profiled."""
    progress.begin("SHA-256", sum(path.stat().st_size for path in models))
    known, found = set(sensitivity.models.values()), False
    for path in models:
        is_known = original_sha256(path, progress) in known
        if path.name in sensitivity.models and not is_known:
            raise _other_model(sensitivity, path)
        found = found or is_known
    progress.finish()
    if not found:
        raise _other_model(sensitivity, checkpoint)


def _other_model(sensitivity: SensitivityFile, path: Path) -> UsageError:
    return UsageError(
        f"{sensitivity.path}: was made from another model than {path}, as their SHA-256 tell",
        hint="`unweight profile` makes one of this model",
    )
