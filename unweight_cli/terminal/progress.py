"""Progress bars: bytes, rate and remaining time, on stderr and only when that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unweight.operations.progress import Progress
from unweight.units import printable
from unweight_cli.terminal import interruption
from unweight_cli.terminal.console import open_console

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

BAR_WIDTH = 24
TITLE_WIDTH = 28


@contextmanager
def progress_bars(*, quiet: bool = False) -> Iterator[Progress]:
    """Yield a progress display; whatever it drew is gone when the context ends."""
    if quiet or not sys.stderr.isatty():
        yield HiddenProgress()
        return
    with _open_bars() as bars:
        yield BarProgress(bars)


class HiddenProgress:
    """Shows nothing; each call ends the run when a signal has asked for that."""

    def begin(self, title: str, total: int) -> None:
        """Raise Interruption after a signal."""
        interruption.check()

    def advance(self, nbytes: int) -> None:
        """Raise Interruption after a signal."""
        interruption.check()

    def finish(self) -> None:
        """Raise Interruption after a signal."""
        interruption.check()


class BarProgress(HiddenProgress):
    """Shows one task at a time as a bar."""

    def __init__(self, bars: "Bars") -> None:
        """Draw on ``bars``, which must be started."""
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, title: str, total: int) -> None:
        """Replace the current bar by one for ``total`` bytes."""
        super().begin(title, total)
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(_shortened(printable(title)), total=total)

    def advance(self, nbytes: int) -> None:
        """Move the bar by ``nbytes``."""
        super().advance(nbytes)
        if self._task is not None:
            self._bars.advance(self._task, nbytes)


def _open_bars() -> "Bars":
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR_WIDTH),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=open_console(sys.stderr),
        transient=True,
    )


def _shortened(title: str) -> str:
    return title if len(title) <= TITLE_WIDTH else f"…{title[1 - TITLE_WIDTH :]}"
