"""Settings of single stages, on top of a preset.

As text, a setting is ``slot:key=value[,key=value…]``, which changes values of the codec that the
preset has in a slot, or ``slot=codec[:key=value…]``, which puts another codec there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from unweight_codecs.codec import Stage
from unweight_codecs.errors import FormatError, UnweightError, UsageError, quoted
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.registry import BUILT_IN_STAGES, codec_class, list_codecs

SettingValue = int | float | str


@dataclass(frozen=True, slots=True)
class StageSetting:
    """A change of one stage of a pipeline.

    Attributes:
        slot: The slot of the stage: ``"grid"``.
        values: New values of its settings, by name; the others keep theirs.
        codec: Name of the codec to put into the slot; empty for the one of the preset.
    """

    slot: str
    values: Mapping[str, SettingValue] = field(default_factory=dict)
    codec: str = ""

    @classmethod
    def parse(cls, text: str) -> "StageSetting":
        """Return the setting that a text gives; raises UsageError for another form.

        Numbers are recognised as such; whether a value suits its setting is for the codec to say.
        """
        head, _, rest = text.partition(":")
        slot, _, codec = head.partition("=")
        if not rest and not codec:
            raise UsageError(f"{quoted(text)}: not of the form slot:key=value or slot=codec")
        values: dict[str, SettingValue] = {}
        for part in rest.split(",") if rest else ():
            key, equals, value = part.partition("=")
            if not equals or not key:
                raise UsageError(f"{quoted(text)}: {quoted(part)} is not of the form key=value")
            values[key] = _number_or_text(value)
        return cls(slot, values, codec)

    def __str__(self) -> str:
        head = f"{self.slot}={self.codec}" if self.codec else self.slot
        values = ",".join(f"{key}={value}" for key, value in self.values.items())
        return f"{head}:{values}" if values else head


def parse_settings(settings: Iterable[StageSetting | str]) -> tuple[StageSetting, ...]:
    """Return settings of which some may be given as text; raises UsageError."""
    return tuple(s if isinstance(s, StageSetting) else StageSetting.parse(s) for s in settings)


def with_settings(pipeline: Pipeline, settings: Iterable[StageSetting | str]) -> Pipeline:
    """Return a pipeline with some stages changed; raises UsageError for what does not fit.

    A changed pipeline carries the name of its preset with a star.
    """
    stages = {stage.slot: stage for stage in pipeline.stages}
    for setting in parse_settings(settings):
        if setting.slot not in stages:
            raise UsageError(
                f"{quoted(str(setting))}: no stage {setting.slot}",
                hint=f"stages: {', '.join(stages)}",
            )
        stage = _codec_for(setting)() if setting.codec else stages[setting.slot]
        stages[setting.slot] = _configured(stage, setting)
    name = pipeline.name if tuple(stages.values()) == pipeline.stages else f"{pipeline.name}*"
    return pipeline_of(name, stages.values())


def _codec_for(setting: StageSetting) -> type[Stage]:
    try:
        found = codec_class(setting.codec)
    except FormatError:  # its words are for a file that needs the codec
        raise UsageError(
            f"{quoted(str(setting))}: there is no codec {quoted(setting.codec)}",
            hint=f"codecs for {setting.slot}: {', '.join(_codecs_of(setting.slot))}",
        ) from None
    except UnweightError as error:
        raise UsageError(error.message, hint=error.hint) from None
    if found.slot != setting.slot:
        raise UsageError(
            f"{quoted(str(setting))}: {setting.codec} is a codec for {found.slot}, "
            f"not {setting.slot}",
            hint=f"codecs for {setting.slot}: {', '.join(_codecs_of(setting.slot))}",
        )
    return found


def _codecs_of(slot: str) -> list[str]:
    try:
        return [codec.name for codec in list_codecs() if codec.slot == slot]
    except UnweightError:  # a package that does not load is not what this is about
        return [stage.name for stage in BUILT_IN_STAGES if stage.slot == slot]


def _configured(stage: Stage, setting: StageSetting) -> Stage:
    known = {field.name for field in fields(stage)}  # type: ignore[arg-type]
    changes: dict[str, SettingValue] = {}
    for key, value in setting.values.items():
        if key not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"{quoted(str(setting))}: no setting {quoted(key)}",
                hint=f"settings of {stage.label()}: {names}",
            )
        if isinstance(getattr(stage, key), str):
            changes[key] = str(value)
        elif isinstance(value, str):
            raise UsageError(f"{quoted(str(setting))}: {quoted(value)} is not a number")
        else:
            changes[key] = value
    try:
        return replace(stage, **changes)  # type: ignore[type-var]
    except FormatError as error:  # a coder that is not installed
        raise UsageError(f"{quoted(str(setting))}: {error.message}", hint=error.hint) from None


def _number_or_text(text: str) -> SettingValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
