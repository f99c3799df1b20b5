"""Signals that are ignored where the tests run, and that what they start should not ignore."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What nohup and the & of a shell make a process ignore, and with it whatever it starts.
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@contextmanager
def not_ignored_by_children() -> Iterator[None]:
    """Let processes that are started meanwhile begin with the default actions of signals.

    A program inherits that a signal is ignored, but no handler. So a signal that this process
    ignores gets a handler that does nothing: the process goes on to ignore it, its children do not.
    """
    ignored = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _do_nothing)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass
