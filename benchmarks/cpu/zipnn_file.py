"""A file through zipnn: what a script of a few lines does, as the peer of a whole process.

usage: python -m benchmarks.cpu.zipnn_file compress|decompress DTYPE THREADS SOURCE TARGET
"""

import importlib
import sys
from pathlib import Path


def main(action: str, dtype: str, threads: str, source: str, target: str) -> None:
    """Compress or decompress ``source`` to ``target``."""
    zipnn = importlib.import_module("zipnn")
    coder = zipnn.ZipNN(bytearray_dtype=dtype, input_format="byte", threads=int(threads))
    work = coder.compress if action == "compress" else coder.decompress
    Path(target).write_bytes(work(Path(source).read_bytes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
