"""Runs every check on one kernel, on buffers that end where memory ends.

Usage: python guarded_run.py KERNEL. A read or write beyond a buffer kills this process; the last
line that it has printed tells which call that was. Run by ``test_kernels_bounds.py``.
"""

import sys

from tests.native import guard_levels, guard_pages
from tests.support.native_library import use_library_under_test
from unweight_codecs.kernels import buffers
from unweight_codecs.kernels.native import NativeKernels, library


def main(name: str) -> None:
    """Run all checks on the kernel called ``name``."""
    use_library_under_test()
    path = library.find_library()
    if path is None:
        raise SystemExit("the C library was not built")
    kernel = NativeKernels(library.load_library(path), name)
    vars(buffers)["empty"] = guard_pages.guarded  # what the binding allocates is guarded, too
    for check in (*guard_pages.CHECKS, *guard_levels.CHECKS):
        print(check.__name__)
        check(kernel)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main(sys.argv[1])
