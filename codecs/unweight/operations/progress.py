"""How an operation tells its caller how far it is."""

from typing import Protocol


class Progress(Protocol):
    """Receives progress. Every method is called from one thread.

    A method may raise to stop the operation. A last one is called right before each output gets its
    name, so that whoever wants to stop is heard.
    """

    def begin(self, title: str, total: int) -> None:
        """A task of ``total`` bytes starts."""

    def advance(self, nbytes: int) -> None:
        """``nbytes`` more bytes of the current task are done; negative when some are done again."""

    def finish(self) -> None:
        """The current task is complete."""


class NoProgress:
    """Ignores everything."""

    def begin(self, title: str, total: int) -> None:
        """Ignore the start of a task."""

    def advance(self, nbytes: int) -> None:
        """Ignore an advance."""

    def finish(self) -> None:
        """Ignore the end of a task."""
