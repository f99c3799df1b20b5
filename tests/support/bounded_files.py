"""A model of what may change within an error bound and what must not, and its way there and back.

The error allowed is ``EPSILON`` but for one tensor that is smaller without any.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import bounded
from tests.support.models import Tensor, write_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.report import OperationReport, TensorReport
from unweight.operations.verify import verify
from unweight_codecs.kernels.operands import Bytes

QUIET = NoProgress()
EPSILON = 0.01
SHAPE = (160, 64)
CHANGED = set(bounded.FLOATS)  # names of the tensors that change
_DEMANDING = {"demanding": 1e-6}  # less than a BF16 can be told from the next one by
_SMALL_CHUNKS = ("pack:chunk_log2=12",)  # several, for several threads


def matrix(dtype: str, seed: int) -> Bytes:
    """Return the words of normally distributed weights."""
    return bounded.words_of(bounded.normal(SHAPE, seed), dtype)


def tensors() -> dict[str, Tensor]:
    """Return matrices of every dtype that may change, and what must not."""
    found = {
        dtype: Tensor(dtype, SHAPE, bounded.with_specials(matrix(dtype, k), dtype).tobytes())
        for k, dtype in enumerate(bounded.FLOATS)
    }
    rng = np.random.default_rng(9)
    return found | {
        "vector": Tensor(
            "BF16", (4096,), bounded.words_of(rng.normal(0, 1, 4096), "BF16").tobytes()
        ),
        "integers": Tensor("I32", (64, 64), rng.integers(0, 9, 4096, np.int32).tobytes()),
        "double": Tensor("F64", (32, 64), rng.normal(0, 1, 2048).tobytes()),
        "demanding": Tensor("BF16", SHAPE, matrix("BF16", 10).tobytes()),
        "small": Tensor("F32", (8, 8), rng.normal(0, 1, 64).astype("<f4").tobytes()),
        "noise": Tensor("F8_E4M3", (90, 90), rng.bytes(8100)),
        "nothing": Tensor("F32", (0, 4), b""),
    }


def write_source(folder: Path) -> Path:
    """Write the model."""
    return write_model(folder / "model.safetensors", tensors(), {"format": "pt"})


def packed(source: Path, target: Path, **options: Any) -> OperationReport:  # noqa: ANN401
    """Compress, in small chunks and within the bound unless ``options`` say otherwise."""
    common = CompressOptions(stages=_SMALL_CHUNKS, epsilon=EPSILON, epsilons=_DEMANDING)
    return compress(source, target, replace(common, **options), QUIET)


def restored(target: Path, threads: int = 1) -> bytes:
    """Decompress, and return the file."""
    back = target.with_name(f"{target.name}.back")
    decompress(target, back, threads=threads, force=True, progress=QUIET)
    return back.read_bytes()


def verified(target: Path, against: Path | None = None, threads: int = 1) -> OperationReport:
    """Verify, perhaps against the original or another model."""
    return verify(target, against, threads=threads, progress=QUIET)


def rows(report: OperationReport) -> dict[str, TensorReport]:
    """Return what a report says of the tensors of its first file, by name."""
    return {row.name: row for row in report.files[0].tensors}
