"""CUDA sources. A module of kernels is compiled as one text, joined from files without includes."""

from importlib import resources
from typing import Final

# Parts that several modules share come first: names of types, then what decoders have in common.
_MODULES: Final = {
    "comparison": ("prelude", "comparison"),
    "decode": ("prelude", "chunks", "rans", "streams", "words", "levels", "planes", "transcode"),
    "gemm": ("prelude", "planes", "tile", "gemm"),
    "histogram": ("prelude", "histogram"),
    "idle": ("prelude", "idle"),
    "palette": ("prelude", "planes", "palette"),
    "xxh3": ("prelude", "xxh3_short", "xxh3"),
}


def names() -> tuple[str, ...]:
    """Return the names of all modules of kernels."""
    return tuple(sorted(_MODULES))


def source(name: str) -> str:
    """Return the CUDA C of a module, with line numbers that compilers report as the files' own."""
    folder = resources.files(__package__)
    return "".join(
        f'#line 1 "{part}.cu"\n{folder.joinpath(f"{part}.cu").read_text(encoding="utf-8")}'
        for part in _MODULES[name]
    )
