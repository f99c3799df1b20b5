"""Teams: chunks, or streams, that a thread block decodes side by side, since they share tables."""

import numpy as np
from numpy.typing import NDArray

from unweight_gpu.decoding.records import TEAM, TEAMS

# What the members of a team share: the kernel, the first of its tables, and how many those are.
TABLE_NEED = np.dtype([("kernel", "<u4"), ("table", "<u4"), ("tables", "<u4")])


class TeamBuilder:
    """Collects records with what they need, and puts those that need the same into teams.

    Attributes:
        count: Records so far.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._records, self._needs = [np.zeros(0, dtype)], [np.zeros(0, TABLE_NEED)]
        self.count = 0

    def add(self, records: NDArray[np.void], needs: NDArray[np.void]) -> None:
        """Add records, and for each of them one of ``TABLE_NEED``."""
        self._records.append(records)
        self._needs.append(needs)
        self.count += len(records)

    def in_teams(self) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.uint32]]:
        """Return all records, ordered by team; the teams (``TEAMS``); and the kernel of each."""
        records, needs = np.concatenate(self._records), np.concatenate(self._needs)
        order = np.lexsort((needs["table"], needs["tables"], needs["kernel"]))
        return records[order], *_teams_of(needs[order])


def _teams_of(needs: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """Cut records into teams of neighbours that need the same.

    Returns records of ``TEAMS``, and the kernel of each.
    """
    number = np.arange(len(needs))
    begins = np.concatenate([[True], needs[1:] != needs[:-1]]) if len(needs) else np.zeros(0, bool)
    in_run = number - np.maximum.accumulate(np.where(begins, number, 0))
    first = np.flatnonzero(in_run % TEAM == 0)
    teams = np.zeros(len(first), TEAMS)
    teams["first"], teams["number"] = first, np.diff(first, append=len(needs))
    teams["table"], teams["tables"] = needs["table"][first], needs["tables"][first]
    return teams, needs["kernel"][first]
