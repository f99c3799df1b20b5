"""Recipes: which pipeline codes which tensor.

    [[rule]]
    tensors = "*.self_attn.q_proj.weight"   # a pattern as in a shell, or a list of them
    preset = "max"                          # a preset, or "stored" to leave tensors alone
    stages = ["grid:mantissa_bits=1"]       # settings on top
    epsilon = 0.001                         # relative error; 0 for exactly these weights

The first rule whose pattern matches wins. A rule has one of the last three keys at least; what it
does not say, and tensors without a rule, take the command's preset and error bound.
"""

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unweight.manifest import LARGEST_EPSILON
from unweight_codecs.codec import Stage
from unweight_codecs.errors import ResourceError, UnweightError, UsageError, quoted
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import STORED, bounded_preset
from unweight_codecs.presets import preset as preset_named
from unweight_codecs.registry import codec_class

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
class Chosen:
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

    def choices_for(self, tensor: str) -> tuple[Chosen, ...]:
        """Return what may code a tensor: an exact pipeline, and one with an error if allowed.

        None of both means to store it.
        """
        rule = self.rules[self._number_of_rule(tensor)]
        if rule.exact is None:
            return ()
        exact = Chosen(rule.exact, self.pipelines[rule.exact])
        epsilon = rule.epsilon
        if epsilon and not rule.is_own:
            epsilon = self.epsilons.get(tensor, epsilon)
        if rule.bounded is None or not epsilon:
            return (exact,)
        return exact, Chosen(rule.bounded, self.pipelines[rule.bounded], epsilon)


def load_recipe(
    preset: str,
    path: Path | None,
    settings: Iterable[str],
    epsilon: float = 0.0,
    epsilons: Mapping[str, float] | None = None,
) -> Recipe:
    """Build the recipe of a command line.

    ``settings`` are for the stages of exact pipelines without ``epsilon``, of bounded ones with it;
    those of ``pack`` for both.
    ``epsilon`` is the relative error allowed where no rule has another, ``epsilons`` may have
    others by name. Raises UsageError, naming file and rule, for anything a recipe must not say.
    """
    # The settings of a command are for the stages of its own mode: those of the other have others.
    # Only packing is the same in both.
    every = tuple(settings)
    shared = tuple(setting for setting in every if setting.partition(":")[0] == Pack.name)
    exact_ones, bounded_ones = (shared, every) if epsilon else (every, shared)
    rules: list[Rule] = []
    pipelines: list[Pipeline] = []

    def number_of(pipeline: Pipeline) -> int:
        if pipeline not in pipelines:
            pipelines.append(pipeline)
        return pipelines.index(pipeline)

    def rule_of(said: _Said) -> Rule:
        name = preset if said.preset is None else said.preset
        bound = check_epsilon(epsilon if said.epsilon is None else said.epsilon)
        if name == STORED:
            if said.stages or said.epsilon:
                raise UsageError(
                    "the preset stored leaves tensors as they are: neither stages nor epsilon can "
                    "have an effect",
                    hint="give the rule another preset",
                )
            return Rule(said.patterns, None)
        is_own = said.epsilon is not None
        if not bound:
            exact = number_of(with_settings(preset_named(name), (*exact_ones, *said.stages)))
            return Rule(said.patterns, exact, is_own=is_own)
        # The rule's settings are for the stages that allow the error; exact ones are the way out.
        bounded = number_of(with_settings(bounded_preset(name), (*bounded_ones, *said.stages)))
        way_out = number_of(with_settings(preset_named(name), exact_ones))
        return Rule(said.patterns, way_out, bounded, bound, is_own)

    for place, rule in _read_rules(path) if path else ():
        try:
            rules.append(rule_of(_parse_rule(rule)))
        except UsageError as error:
            raise UsageError(f"{place}: {error.message}", hint=error.hint) from None
    rules.append(rule_of(_Said(("*",))))
    if epsilon and not any(rule.epsilon for rule in rules):
        raise UsageError(
            f"--epsilon has no effect with the preset {preset}", hint="give another preset"
        )
    return Recipe(tuple(rules), pipelines, preset, epsilons or {})


def check_epsilon(epsilon: object) -> float:
    """Return a relative error bound; raises UsageError unless it is a number from 0 to 1."""
    is_number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if is_number and 0 <= float(epsilon) <= LARGEST_EPSILON:  # type: ignore[arg-type]
        return float(epsilon)  # type: ignore[arg-type]
    raise UsageError(
        f"epsilon must be a number from 0 to 1, not {quoted(epsilon)}",
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
    rules = document.pop("rule", [])
    if document or not isinstance(rules, list):
        raise UsageError(f"{path}: a recipe holds [[rule]] tables only, not {sorted(document)}")
    heads = [n for n, line in enumerate(lines.splitlines(), 1) if _HEAD.match(line)]
    # They are as many as the rules, unless a rule is written in another way.
    known = [f"{path}:{n}" for n in heads] if len(heads) == len(rules) else [str(path)] * len(rules)
    return [
        (f"{where}: rule {number}", rule)
        for number, (where, rule) in enumerate(zip(known, rules, strict=True), start=1)
    ]


@dataclass(frozen=True, slots=True)
class _Said:
    """What a rule says; None stands for what the command says."""

    patterns: tuple[str, ...]
    preset: str | None = None
    stages: tuple[str, ...] = ()
    epsilon: Any = None


def _parse_rule(
    rule: Any,  # noqa: ANN401 - parsed TOML
) -> _Said:
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
    return _Said(tuple(patterns), preset, tuple(stages), rule.get("epsilon"))


def with_settings(pipeline: Pipeline, settings: Iterable[str]) -> Pipeline:
    """Apply settings of the form ``stage:key=value[,key=value…]`` or ``slot=codec`` to a pipeline.

    A changed pipeline carries the name of its preset with a star.
    """
    stages = {stage.slot: stage for stage in pipeline.stages}
    for setting in settings:
        head, _, rest = setting.partition(":")
        slot, _, codec = head.partition("=")
        if codec:
            chosen = _codec(codec)
            if chosen.slot != slot:
                raise UsageError(
                    f"{quoted(setting)}: {codec} is a codec for {chosen.slot}, not {slot}"
                )
            stages[slot] = chosen()
        if slot not in stages:
            raise UsageError(
                f"{quoted(setting)}: no stage {slot}", hint=f"stages: {', '.join(stages)}"
            )
        stages[slot] = _configured(stages[slot], rest, setting, codec != "")
    name = pipeline.name if tuple(stages.values()) == pipeline.stages else f"{pipeline.name}*"
    return pipeline_of(name, stages.values())


def _codec(name: str) -> type[Stage]:
    try:
        return codec_class(name)
    except UnweightError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _configured(stage: Stage, text: str, setting: str, bare_is_fine: bool) -> Stage:
    if not text:
        if bare_is_fine:
            return stage
        raise UsageError(f"{quoted(setting)}: not of the form stage:key=value")
    known = {field.name for field in fields(stage)}  # type: ignore[arg-type]
    changes: dict[str, int | float | str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"{quoted(setting)}: no setting {quoted(key)}",
                hint=f"settings of {stage.label()}: {names}",
            )
        is_text = isinstance(getattr(stage, key), str)
        changes[key] = value if is_text else _number(value, setting)
    return replace(stage, **changes)  # type: ignore[type-var]


def _number(value: str, setting: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise UsageError(f"{quoted(setting)}: {quoted(value)} is not a number")
