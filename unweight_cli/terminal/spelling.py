"""How the command line spells the parameters that errors of the library speak of."""

from typing import Final

from unweight_codecs.errors import Parameter, Phrase

# Options that are not called as the parameter is.
_OPTIONS: Final = {
    "epsilons": "--epsilon",
    "output": "-o",
    "presets": "--preset",
    "stages": "--stage",
}


def option_of(parameter: Parameter) -> str:
    """Return an option as it is typed: ``--threads``, ``--device cpu``, ``--no-perplexity``."""
    name, value = parameter.name, parameter.value
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if value is None or value is True:
        return option
    return f"--no-{option.removeprefix('--')}" if value is False else f"{option} {value}"


def as_options(text: str) -> str:
    """Return a message or a hint of the library in the words of the command line."""
    return text.spelled(option_of) if isinstance(text, Phrase) else text
