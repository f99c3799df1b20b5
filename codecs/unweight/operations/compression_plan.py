"""What ``compress`` is going to do: everything that can be known, or be wrong, before it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from unweight.archive.header import check_not_archive
from unweight.containers.base import ContainerIndex, FileSource
from unweight.containers.registry import read_index
from unweight.operations.files import Job, check_job_target, compressed_name, open_job
from unweight.recipe import Recipe, RecipeSource, read_recipe
from unweight.stage_settings import StageSetting
from unweight_codecs.errors import UsageError
from unweight_codecs.parallel import thread_count
from unweight_codecs.presets import DEFAULT


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """What to compress with.

    Attributes:
        preset: Name of a preset.
        recipe: TOML file that maps tensor-name patterns to pipelines; overrides the preset.
        stages: Settings on top, some of them perhaps as text: ``"grid:mantissa_bits=1"``.
        threads: Threads to use; 0 takes what the process may use.
        force: Replace an existing target.
        epsilon: Relative error allowed in a matrix of floats, in the Frobenius norm; 0 for none.
        epsilons: Other error bounds, by the name of the tensor.
    """

    preset: str = DEFAULT
    recipe: Path | None = None
    stages: tuple[StageSetting | str, ...] = ()
    threads: int = 0
    force: bool = False
    epsilon: float = 0.0
    epsilons: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """A run that makes sense.

    Attributes:
        options: What it was planned with.
        job: The files, listed once.
        indexes: What is in each of the model files, in the order of the job.
        target: Where the result goes.
        recipe_source: The recipe without its common error bound.
        recipe: The recipe.
    """

    options: CompressOptions
    job: Job
    indexes: tuple[ContainerIndex, ...]
    target: Path
    recipe_source: RecipeSource
    recipe: Recipe

    @property
    def tensor_names(self) -> list[str]:
        """Names of all tensors of all files."""
        return [entry.spec.name for index in self.indexes for entry in index.tensors]

    def within(
        self, epsilon: float, epsilons: Mapping[str, float] | None = None
    ) -> "CompressionPlan":
        """Return the plan with other error bounds; raises UsageError for ones that cannot be."""
        bounds = epsilons or {}
        recipe = self.recipe_source.within(epsilon, bounds)
        if bounds and not any(name in bounds for name in self.tensor_names):
            raise UsageError(
                "no tensor has a name for which there is an error bound of its own",
                hint="was the sensitivity file made from another model?",
            )
        options = replace(self.options, epsilon=epsilon, epsilons=bounds)
        return replace(self, options=options, recipe=recipe)

    def to(self, target: Path) -> "CompressionPlan":
        """Return the plan with another target, which must not exist; raises UsageError."""
        check_job_target(self.job, target, force=False)
        return replace(self, options=replace(self.options, force=False), target=target)


def plan_compression(
    source: Path, target: Path | None, options: CompressOptions
) -> CompressionPlan:
    """Read everything but the tensors and plan what to do; nothing is written.

    Without ``target`` the output goes beside the input. Raises UsageError for options or a target
    that make no sense, FormatError for files that cannot be compressed.
    """
    thread_count(options.threads)
    recipe_source = read_recipe(options.preset, options.recipe, options.stages)
    recipe = recipe_source.within(options.epsilon, options.epsilons)
    job = open_job(source)
    target = target or compressed_name(source)
    check_job_target(job, target, force=options.force)
    indexes = tuple(_index_of(path, job) for path, _ in job.models)
    plan = CompressionPlan(options, job, indexes, target, recipe_source, recipe)
    return plan.within(options.epsilon, options.epsilons)


def _index_of(path: Path, job: Job) -> ContainerIndex:
    with FileSource(path) as source:
        index = read_index(source)
    if job.is_directory:
        hint = "move or remove it, unless the whole directory is compressed already"
        check_not_archive(index, path, hint)
    else:
        check_not_archive(index, path)
    return index
