"""Recipes: which pipeline codes which tensor.

    [[rule]]
    tensors = "*.self_attn.q_proj.weight"   # a pattern as in a shell, or a list of them
    preset = "max"                          # a preset, or "stored" to leave tensors alone
    stages = ["grid:mantissa_bits=1"]       # settings on top
    epsilon = 0.001                         # relative error; 0 for exactly these weights

The first rule whose pattern matches wins. A rule has one of the last three keys at least; what it
does not say, and tensors without a rule, take the preset and the error bound common to all.
"""

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unweight.manifest import MAX_EPSILON
from unweight.stage_settings import StageSetting, parse_settings, with_settings
from unweight_codecs.errors import ResourceError, UnweightError, UsageError, quoted
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import STORED, bounded_preset
from unweight_codecs.presets import preset as preset_named

MAX_RECIPE_BYTES = 1 << 20
_OPTIONAL_KEYS = {"preset", "stages", "epsilon"}
_HEAD = re.compile(r"\s*\[\[\s*rule\s*\]\]")


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of tensors whose name matches one of the patterns.

    Attributes:
        patterns: As in a shell.
        exact: Number of the pipeline that codes them without error; None stores them.
        bounded: Number of the pipeline that codes them within ``epsilon``.
        epsilon: Relative error allowed; 0 for none.
        is_own: Whether the rule says so itself; otherwise a tensor may have another by its name.
    """

    patterns: tuple[str, ...]
    exact: int | None
    bounded: int | None = None
    epsilon: float = 0.0
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class PipelineChoice:
    """A pipeline for a tensor, and its number. ``epsilon`` is 0 where it is exact."""

    number: int
    pipeline: Pipeline
    epsilon: float = 0.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Rules in order; the last one matches everything and takes the preset.

    ``epsilons`` are error bounds of tensors by name. They replace the common bound, not that of a
    rule.
    """

    rules: tuple[Rule, ...]
    pipelines: list[Pipeline]
    preset: str
    epsilons: Mapping[str, float]

    @property
    def is_bounded(self) -> bool:
        """Whether some tensor may be changed."""
        return any(rule.epsilon for rule in self.rules)

    def idle_rules(self, tensors: Iterable[str]) -> list[int]:
        """Return the numbers, from 1 on, of the rules that none of the tensors follows."""
        used = {self._number_of_rule(tensor) for tensor in tensors}
        return [number for number in range(1, len(self.rules)) if number - 1 not in used]

    def _number_of_rule(self, tensor: str) -> int:
        for number, rule in enumerate(self.rules):
            if any(fnmatch.fnmatchcase(tensor, pattern) for pattern in rule.patterns):
                return number
        raise UnweightError("a recipe without a rule for every tensor")

    def choices_for(self, tensor: str) -> tuple[PipelineChoice, ...]:
        """Return what may code a tensor: an exact pipeline, and one with an error if allowed.

        None of both means to store it.
        """
        rule = self.rules[self._number_of_rule(tensor)]
        if rule.exact is None:
            return ()
        exact = PipelineChoice(rule.exact, self.pipelines[rule.exact])
        epsilon = rule.epsilon
        if epsilon and not rule.is_own:
            epsilon = self.epsilons.get(tensor, epsilon)
        if rule.bounded is None or not epsilon:
            return (exact,)
        return exact, PipelineChoice(rule.bounded, self.pipelines[rule.bounded], epsilon)


@dataclass(frozen=True, slots=True)
class _RuleSource:
    """A rule as it is written; None stands for what is common to all tensors.

    Attributes:
        place: Where it is, for errors: ``recipe.toml:7: rule 2``; empty for the common rule.
        patterns: As in a shell.
        preset: Name of a preset.
        settings: Settings of stages on top.
        epsilon: The error bound as it is written, not yet checked.
    """

    place: str
    patterns: tuple[str, ...]
    preset: str | None = None
    settings: tuple[StageSetting, ...] = ()
    epsilon: Any = None


@dataclass(frozen=True, slots=True)
class RecipeSource:
    """A recipe before its common error bound is known: each bound gives one recipe.

    Attributes:
        preset: Name of the preset for tensors without one of their own.
        settings: Settings of stages, for all rules: of exact pipelines without a common bound, of
            bounded ones with it; those of ``pack`` for both.
        rules: In order, the last one being for all tensors.
    """

    preset: str
    settings: tuple[StageSetting, ...]
    rules: tuple[_RuleSource, ...]

    def within(self, epsilon: float, epsilons: Mapping[str, float] | None = None) -> Recipe:
        """Return the recipe for a common error bound.

        ``epsilon`` is the relative error allowed where no rule has another, ``epsilons`` may have
        others by name of the tensor. Raises UsageError, naming file and rule, for what makes no
        sense.
        """
        pipelines: list[Pipeline] = []
        rules = []
        for source in self.rules:
            try:
                rules.append(self._rule(source, epsilon, pipelines))
            except UsageError as error:
                if not source.place:
                    raise
                raise UsageError(f"{source.place}: {error.message}", hint=error.hint) from None
        if epsilon and not any(rule.epsilon for rule in rules):
            raise UsageError(
                f"has no effect with the preset {self.preset}",
                hint="give another preset",
                parameter="epsilon",
            )
        return Recipe(tuple(rules), pipelines, self.preset, epsilons or {})

    def _rule(self, source: _RuleSource, common: float, pipelines: list[Pipeline]) -> Rule:
        """Build one rule; its pipelines are added to ``pipelines`` unless they are there."""

        def number_of(pipeline: Pipeline) -> int:
            if pipeline not in pipelines:
                pipelines.append(pipeline)
            return pipelines.index(pipeline)

        # Settings for all rules are for the stages of the common mode: those of the other mode have
        # other settings. Only packing is the same in both.
        shared = tuple(setting for setting in self.settings if setting.slot == Pack.slot)
        exact, bounded = (shared, self.settings) if common else (self.settings, shared)
        name = self.preset if source.preset is None else source.preset
        epsilon = check_epsilon(common if source.epsilon is None else source.epsilon)
        if name == STORED:
            if source.settings or source.epsilon:
                raise UsageError(
                    "the preset stored leaves tensors as they are: neither stages nor epsilon can "
                    "have an effect",
                    hint="give the rule another preset",
                )
            return Rule(source.patterns, None)
        is_own = source.epsilon is not None
        if not epsilon:
            pipeline = with_settings(preset_named(name), (*exact, *source.settings))
            return Rule(source.patterns, number_of(pipeline), is_own=is_own)
        # The rule's settings are for the stages that allow the error; exact ones are the way out.
        within = number_of(with_settings(bounded_preset(name), (*bounded, *source.settings)))
        way_out = number_of(with_settings(preset_named(name), exact))
        return Rule(source.patterns, way_out, within, epsilon, is_own)


def read_recipe(
    preset: str, path: Path | None, settings: Iterable[StageSetting | str]
) -> RecipeSource:
    """Read a recipe file, if there is one, to go on top of a preset and common settings.

    Raises UsageError, naming file and rule, for anything a recipe must not say; whether presets and
    settings make sense is found by ``RecipeSource.within``.
    """
    rules = []
    for place, rule in _read_rules(path) if path else ():
        try:
            rules.append(_parse_rule(place, rule))
        except UsageError as error:
            raise UsageError(f"{place}: {error.message}", hint=error.hint) from None
    return RecipeSource(preset, parse_settings(settings), (*rules, _RuleSource("", ("*",))))


def load_recipe(
    preset: str,
    path: Path | None,
    settings: Iterable[StageSetting | str],
    epsilon: float = 0.0,
    epsilons: Mapping[str, float] | None = None,
) -> Recipe:
    """Read a recipe and return it for a common error bound; see ``RecipeSource``."""
    return read_recipe(preset, path, settings).within(epsilon, epsilons)


def check_epsilon(epsilon: object) -> float:
    """Return a relative error bound; raises UsageError unless it is a number from 0 to 1."""
    is_number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if is_number and 0 <= float(epsilon) <= MAX_EPSILON:  # type: ignore[arg-type]
        return float(epsilon)  # type: ignore[arg-type]
    raise UsageError(
        f"must be a number from 0 to 1, not {quoted(epsilon)}",
        parameter="epsilon",
        hint="it is the relative error allowed in a tensor: 0.005 is about that of 8 bits",
    )


def _read_rules(path: Path) -> list[tuple[str, Any]]:
    """Return the rules of a file, and where each is: ``recipe.toml:7: rule 2``."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_RECIPE_BYTES + 1)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > MAX_RECIPE_BYTES:
        raise UsageError(f"{path}: too large for a recipe")
    try:
        lines = text.decode("utf-8")
        document = tomllib.loads(lines)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply for a recipe") from None
    rules = document.pop("rule", [])
    if document or not isinstance(rules, list):
        wrong = sorted(document) if document else f"rule = {rules!r}"
        raise UsageError(f"{path}: a recipe holds [[rule]] tables only, not {wrong}")
    heads = [n for n, line in enumerate(lines.splitlines(), 1) if _HEAD.match(line)]
    # They are as many as the rules, unless a rule is written in another way.
    known = [f"{path}:{n}" for n in heads] if len(heads) == len(rules) else [str(path)] * len(rules)
    return [
        (f"{where}: rule {number}", rule)
        for number, (where, rule) in enumerate(zip(known, rules, strict=True), start=1)
    ]


def _parse_rule(
    place: str,
    rule: Any,  # noqa: ANN401 - parsed TOML
) -> _RuleSource:
    keys = set(rule) if isinstance(rule, dict) else set()
    if "tensors" not in keys or not keys & _OPTIONAL_KEYS or keys - {"tensors"} - _OPTIONAL_KEYS:
        raise UsageError(
            "a rule has the keys tensors and at least one of preset, stages and epsilon"
        )
    patterns, stages = rule["tensors"], rule.get("stages", [])
    patterns = [patterns] if isinstance(patterns, str) else patterns
    for value, name in ((patterns, "tensors"), (stages, "stages")):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{name} must be a list of strings")
    preset = rule.get("preset")
    if "preset" in rule and not isinstance(preset, str):
        raise UsageError("preset must be a string")
    return _RuleSource(place, tuple(patterns), preset, parse_settings(stages), rule.get("epsilon"))
