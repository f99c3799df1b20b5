"""Keeps a test from allocating more than it should."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")


@contextmanager
def at_most_more(nbytes: int) -> Iterator[None]:
    """Let the process allocate at most ``nbytes`` more address space than it has now.

    Without /proc there is no limit.
    """
    if not STATUS.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    resource.setrlimit(resource.RLIMIT_AS, (int(fields["VmSize"].split()[0]) * 1024 + nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
