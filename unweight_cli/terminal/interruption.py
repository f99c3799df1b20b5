"""Signals that end a run: the first one is raised and remembered, later ones are ignored.

Remembered, because Python drops an exception that is raised inside a finaliser or a callback. A run
that goes on after that asks ``check`` now and then, and before it gives its output a name.

This is the first module that the program loads: it imports nothing that takes long.
"""

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import Final

SIGNALS: "Final" = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_received: list[int] = []
_ending: list[bool] = []


class Interruption(BaseException):
    """A signal asked the run to end. Like KeyboardInterrupt, it is no Exception."""

    def __init__(self, number: int) -> None:
        """Keep the number of the signal."""
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell reports for a program that this signal ended."""
        return 128 + self.number

    @property
    def word(self) -> str:
        """What happened, in one word."""
        return "interrupted" if self.number == signal.SIGINT else "terminated"


def install() -> None:
    """Turn the signals into Interruption; one that the caller ignores (``nohup``) stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _receive)
    sys.unraisablehook = _report_unraisable


def ignore() -> None:
    """Let no signal disturb the end of the process, when Python takes its handlers away."""
    _ending.append(True)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def received() -> Interruption | None:
    """Return what the first signal asked for, if there was one."""
    return Interruption(_received[0]) if _received else None


def check() -> None:
    """Raise Interruption when a signal has come."""
    if _received:
        raise Interruption(_received[0])


def _receive(number: int, frame: "FrameType | None") -> None:
    # A signal may still come while the others are already ignored.
    _received.append(number)
    if len(_received) == 1 and not _ending:
        raise Interruption(number)


def _report_unraisable(unraisable: "UnraisableHookArgs") -> None:
    # An interruption in a finaliser is not lost, and what fails in one after that is its
    # consequence, such as an object that was interrupted before it had all of its attributes.
    if _received:
        return
    # Python tells of a signal that came before ``ignore`` and finds no handler when its turn comes.
    if _ending and unraisable.exc_type is OSError:
        return
    sys.__unraisablehook__(unraisable)
