"""Teams: chunks that a block of threads decodes side by side, since they share tables."""

import numpy as np
from numpy.typing import NDArray

from unweight_gpu.decoding.chunk_records import TEAM, TEAMS

# What teams share: the kernel, the first of the tables that it needs, and how many those are.
NEED = np.dtype([("kernel", "<u4"), ("table", "<u4"), ("tables", "<u4")])


def order_of(needs: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the order in which members with the same needs are neighbours."""
    return np.lexsort((needs["table"], needs["tables"], needs["kernel"]))


def teams_of(needs: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """Cut members in their order into teams of neighbours that need the same.

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
