"""CUDA sources. Every file is compiled behind ``prelude.cu``, as one text without includes."""

from importlib import resources
from typing import Final

_PRELUDE: Final = "prelude"


def names() -> tuple[str, ...]:
    """Return the names of all modules of kernels, without ``.cu``."""
    files = resources.files(__package__).iterdir()
    found = {file.name.removesuffix(".cu") for file in files if file.name.endswith(".cu")}
    return tuple(sorted(found - {_PRELUDE}))


def source(name: str) -> str:
    """Return the CUDA C of a module, with line numbers that compilers report as the file's own."""
    return "".join(
        f'#line 1 "{part}.cu"\n' + resources.files(__package__).joinpath(f"{part}.cu").read_text()
        for part in (_PRELUDE, name)
    )
