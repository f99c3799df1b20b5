"""Tests can run on a library of their own, such as one that was built with sanitizers."""

import os
from pathlib import Path
from typing import Final

from unweight_codecs.kernels.native import library

VARIABLE: Final = "UNWEIGHT_NATIVE_LIBRARY"


def use_library_under_test() -> None:
    """Load the library that the environment names instead of the installed one.

    The package itself does not look at this variable: what it loads lies beside it.
    """
    if path := os.environ.get(VARIABLE):
        if not Path(path).is_file():
            raise FileNotFoundError(f"{VARIABLE}={path}")
        vars(library)["find_library"] = lambda: Path(path)
