"""The same input gives the same bytes, whatever the kernel and the number of threads."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight_codecs.kernels import kernel_status
from unweight_codecs.presets import PRESETS

KERNELS = [status.name for status in kernel_status() if status.available]
THREADS = (1, 2, 5)
STAGES = ("pack:chunk_log2=12",)  # many chunks, so that there is work for several threads


def tensors() -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Return a tensor of every kind; the largest has more than eight chunks per thread."""
    rng = np.random.default_rng(11)
    scales = np.exp2(rng.normal(-4, 2, (1280, 1)))
    values = (rng.normal(0, 1, (1280, 64)) * scales).astype("<f4")
    small = values[:96]
    return [
        ("bf16", "BF16", (1280, 64), values.view("<u2")[:, 1::2].tobytes()),
        ("f16", "F16", (96, 64), small.astype("<f2").tobytes()),
        ("f32", "F32", (192, 64), values[:192].tobytes()),
        ("f64", "F64", (96, 64), small.astype("<f8").tobytes()),
        ("c64", "C64", (96, 32), small.tobytes()),
        ("fp8", "F8_E4M3", (96, 64), small.astype("<f2").view(np.uint8)[:, 1::2].tobytes()),
        ("i64", "I64", (2000,), rng.integers(-40, 40, 2000, np.int64).tobytes()),
        ("u8", "U8", (9000,), np.minimum(rng.geometric(0.1, 9000), 255).astype(np.uint8).tobytes()),
        ("text", "U8", (9000,), (b"again and again. " * 530)[:9000]),
        ("zeros", "I32", (4000,), bytes(16_000)),
        ("noise", "F32", (1100,), rng.bytes(4400)),
        ("empty", "BF16", (0, 3), b""),
        ("scalar", "F32", (), b"abcd"),
    ]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, write_model: Callable[..., Path]) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m.safetensors", tensors(), {"a": "b"})


@pytest.mark.parametrize("preset", PRESETS)
def test_bytes_do_not_depend_on_kernel_and_threads(
    source: Path, tmp_path: Path, use_kernel: Callable[[str], None], preset: str
) -> None:
    results: dict[bytes, list[str]] = {}
    for kernel in KERNELS:
        use_kernel(kernel)
        for threads in THREADS if kernel != "reference" else (2,):
            target = tmp_path / f"{kernel}-{threads}"
            options = CompressOptions(preset=preset, stages=STAGES, threads=threads)
            compress(source, target, options, NoProgress())
            results.setdefault(target.read_bytes(), []).append(target.name)
    assert len(results) == 1, list(results.values())


def test_every_kernel_reads_what_the_others_wrote(
    source: Path, tmp_path: Path, use_kernel: Callable[[str], None]
) -> None:
    coded = tmp_path / "coded"
    compress(source, coded, CompressOptions(preset="max", stages=STAGES), NoProgress())
    for kernel in KERNELS:
        use_kernel(kernel)
        back = tmp_path / kernel
        decompress(coded, back, threads=2, force=False, progress=NoProgress())
        assert back.read_bytes() == source.read_bytes(), kernel
