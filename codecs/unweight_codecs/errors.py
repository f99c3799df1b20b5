"""The one exception tree of the project. Each class carries the exit code reported for it.

Messages and hints speak of parameters by the names that they have in Python. A program with other
words for them, like a command line, finds them in the ``parts`` of a ``Phrase``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that an error speaks of, as ``threads``, or with a value, as ``force=True``."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class Phrase(str):
    """A text in which parameters can be told from other words.

    Attributes:
        parts: Texts and parameters, which make up the phrase in this order.
    """

    parts: tuple[str | Parameter, ...]

    def __new__(cls, *parts: str | Parameter) -> Self:
        """Join texts and parameters."""
        phrase = super().__new__(cls, "".join(map(str, parts)))
        phrase.parts = parts
        return phrase

    def spelled(self, spell: Callable[[Parameter], str]) -> str:
        """Return the phrase with every parameter as ``spell`` writes it."""
        return "".join(spell(p) if isinstance(p, Parameter) else p for p in self.parts)


class UnweightError(Exception):
    """Base of every error raised on purpose.

    Attributes:
        message: One line that says what is wrong and where.
        hint: What to do about it; may be empty.
        parameter: Name of the parameter whose value is wrong; empty if that is not the trouble.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", parameter: str = "") -> None:
        """Keep what is wrong.

        Args:
            message: What is wrong; with ``parameter`` what follows its name: ``must be above 0``.
            hint: What to do about it.
            parameter: The parameter that is wrong, where it is one; a phrase as ``message`` may
                begin with it instead.
        """
        if parameter:
            message = Phrase(Parameter(parameter), " ", *_parts_of(message))
        first = _parts_of(message)[0]
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.parameter = first.name if isinstance(first, Parameter) else ""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(UnweightError):
    """The request makes no sense: a bad parameter, output equal to input, a bad recipe."""

    exit_code = 2


class FormatError(UnweightError):
    """The input is not a valid or not a supported file."""

    exit_code = 3


class IntegrityError(UnweightError):
    """A checksum, digest or bit comparison failed: the bytes are not what they must be."""

    exit_code = 4


class QualityGateError(UnweightError):
    """A measured quality (error bound, perplexity) is outside what was asked for."""

    exit_code = 5


class ResourceError(UnweightError):
    """The surroundings do not allow it: no space, no permission, a missing extra, no device."""

    exit_code = 6


def quoted(value: object, limit: int = 160) -> str:
    """Return ``repr(value)`` for a message, shortened in the middle when it is long.

    Names in a file are untrusted: they may hold line breaks or be megabytes long.
    """
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 4 :]}"


def _parts_of(text: str) -> tuple[str | Parameter, ...]:
    return text.parts if isinstance(text, Phrase) else (text,)
