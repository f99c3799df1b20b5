"""The one exception tree of the project. Each class carries the exit code reported for it."""

from typing import ClassVar


class UnweightError(Exception):
    """Base of every error raised on purpose.

    The message is one line that says what is wrong and where; ``hint`` says what to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(UnweightError):
    """The request makes no sense: a bad option value, output equal to input, a bad recipe."""

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
