"""The in-memory benchmark works on what any file may hold."""

from pathlib import Path

import numpy as np
import pytest

from unweight.containers.safetensors import header_bytes
from unweight.operations.bench import bench
from unweight.operations.progress import NoProgress


def skewed(dtype: str, count: int) -> bytes:
    return np.random.default_rng(1).geometric(0.4, count).astype(dtype).tobytes()


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("U8", skewed("u1", 8192)),
        ("I8", skewed("i1", 8192)),
        ("BOOL", skewed("u1", 8192)),
        ("I64", skewed("<i8", 8192)),
        ("F32", np.random.default_rng(2).normal(0, 0.02, 8192).astype("<f4").tobytes()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_width_shrinks_and_comes_back(
    dtype: str, data: bytes, tmp_path: Path, each_kernel: str
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(header_bytes([("x", dtype, (8192,), len(data))], None) + data)
    (row,) = bench(path, ("default",), repeats=1, progress=NoProgress()).rows
    assert row.source_bytes == len(data)
    assert row.coded_bytes < row.source_bytes
