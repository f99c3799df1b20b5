"""Runs the command in its arguments; prints its wall and CPU seconds and peak memory as JSON.

It imports next to nothing on purpose. Linux counts the memory of a process that starts another one
into the peak of the new one, so the parent has to be smaller than anything worth measuring.
"""

import json
import os
import sys
import time


def main(command: list[str]) -> int:
    """Run ``command`` with its output discarded; returns its exit code."""
    silence = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    start = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ, file_actions=[silence])
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    figures = {
        "wall_seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * unit,
    }
    print(json.dumps(figures))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
