"""Recipes: which pipeline codes which tensor.

    [[rule]]
    tensors = "*.self_attn.q_proj.weight"   # a pattern as in a shell, or a list of them
    preset = "max"                          # a preset, or "stored" to leave tensors alone
    stages = ["grid:mantissa_bits=1"]       # optional settings on top

The first rule whose pattern matches wins; tensors without a rule take the command's preset.
"""

import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unweight_codecs.codec import Stage
from unweight_codecs.errors import ResourceError, UnweightError, UsageError, quoted
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import preset as preset_named
from unweight_codecs.registry import codec_class

MAX_RECIPE_BYTES = 1 << 20
_RULE_KEYS = {"tensors", "preset", "stages"}


@dataclass(frozen=True, slots=True)
class Rule:
    """Tensors whose name matches one of the patterns take pipeline ``number``; None stores them."""

    patterns: tuple[str, ...]
    number: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Rules in order; the last one matches everything and takes the preset."""

    rules: tuple[Rule, ...]
    pipelines: list[Pipeline]
    preset: str

    def pipeline_for(self, tensor: str) -> tuple[int, str, Pipeline] | None:
        """Return number, name and pipeline for a tensor; None to store it."""
        for rule in self.rules:
            if any(fnmatch.fnmatchcase(tensor, pattern) for pattern in rule.patterns):
                if rule.number is None:
                    return None
                return rule.number, rule.name, self.pipelines[rule.number]
        raise UnweightError("a recipe without a rule for every tensor")


def load_recipe(preset: str, path: Path | None, settings: Iterable[str]) -> Recipe:
    """Build the recipe of a command line.

    Raises UsageError, naming file and rule, for anything a recipe must not say.
    """
    common = tuple(settings)
    rules: list[Rule] = []
    pipelines: list[Pipeline] = []

    def add(patterns: tuple[str, ...], name: str, own: Iterable[str]) -> None:
        if name == "stored":
            rules.append(Rule(patterns, None, name))
            return
        pipeline = with_settings(preset_named(name), (*common, *own))
        if pipeline not in pipelines:
            pipelines.append(pipeline)
        rules.append(Rule(patterns, pipelines.index(pipeline), pipeline.name))

    for number, rule in enumerate(_read_rules(path) if path else (), start=1):
        try:
            add(*_parse_rule(rule))
        except UsageError as error:
            raise UsageError(f"{path}: rule {number}: {error.message}", hint=error.hint) from None
    add(("*",), preset, ())
    return Recipe(tuple(rules), pipelines, preset)


def _read_rules(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_RECIPE_BYTES + 1)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > MAX_RECIPE_BYTES:
        raise UsageError(f"{path}: too large for a recipe")
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    rules = document.pop("rule", [])
    if document or not isinstance(rules, list):
        raise UsageError(f"{path}: a recipe holds [[rule]] tables only, not {sorted(document)}")
    return rules


def _parse_rule(rule: Any) -> tuple[tuple[str, ...], str, tuple[str, ...]]:  # noqa: ANN401 - parsed TOML
    if (
        not isinstance(rule, dict)
        or set(rule) - _RULE_KEYS
        or not {"tensors", "preset"} <= set(rule)
    ):
        raise UsageError("a rule has the keys tensors, preset and optionally stages")
    patterns, stages = rule["tensors"], rule.get("stages", [])
    patterns = [patterns] if isinstance(patterns, str) else patterns
    for value, name in ((patterns, "tensors"), (stages, "stages")):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{name} must be a list of strings")
    if not isinstance(rule["preset"], str):
        raise UsageError("preset must be a string")
    return tuple(patterns), rule["preset"], tuple(stages)


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
    changes = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"{quoted(setting)}: no setting {quoted(key)}",
                hint=f"settings of {stage.slot}: {names}",
            )
        changes[key] = _number(value, setting)
    return replace(stage, **changes)  # type: ignore[type-var]


def _number(value: str, setting: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise UsageError(f"{quoted(setting)}: {quoted(value)} is not a number")
