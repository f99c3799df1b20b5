"""What tests of perplexity share: the trained model among the fixtures, and copies of it."""

import importlib.util
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.models import Tensor, write_model
from unweight.containers.base import FileSource
from unweight.containers.safetensors import read_index
from unweight.evaluation.extra import PACKAGES, require_extra
from unweight.evaluation.model.checkpoint import open_checkpoint
from unweight.evaluation.model.language_model import LanguageModel, limit_threads, load
from unweight.operations.progress import NoProgress

TINY = Path(__file__).parents[2] / "fixtures" / "models" / "tiny-llama"
EVALUATION_TEXT = TINY / "eval.txt"
REAL = Path(__file__).parents[3] / "shared" / "real" / "stories260K-restored"

needs_extra = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES),
    reason="torch and transformers are not installed: pip install 'unweight[eval]'",
)

Weights = dict[str, NDArray[np.float32]]


def load_model(path: Path) -> LanguageModel:
    """Load a model on the CPU. One thread: several spin, which takes long on a busy machine."""
    require_extra()
    limit_threads(1)
    with open_checkpoint(path, threads=1, progress=NoProgress()) as checkpoint:
        return load(checkpoint, "cpu")


def weights_of(model: Path) -> Weights:
    """Return the weights of a BF16 safetensors file."""
    weights = {}
    with FileSource(model) as source:
        for entry in read_index(source).tensors:
            words = np.frombuffer(source.read_at(entry.offset, entry.nbytes), "<u2")
            values = (words.astype("<u4") << 16).view("<f4")
            weights[entry.spec.name] = values.reshape(entry.spec.shape)
    return weights


def variant(folder: Path, change: Callable[[Weights], Weights]) -> Path:
    """Write a copy of the model with other weights, as BF16; returns its directory."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.txt"))
    weights = change(weights_of(TINY / "model.safetensors"))
    tensors = {
        name: Tensor("BF16", array.shape, bf16(array).tobytes()) for name, array in weights.items()
    }
    write_model(folder / "model.safetensors", tensors, {"format": "pt"})
    return folder


def bf16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the upper halves of the words, which is enough of rounding for a test."""
    return (np.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2")


def scrambled(weights: Weights) -> Weights:
    """Shuffle the weights of every matrix: valid numbers of the right spread, but no model."""
    generator = np.random.default_rng(1)
    return {
        name: generator.permuted(array.reshape(-1)).reshape(array.shape)
        if array.ndim > 1
        else array
        for name, array in weights.items()
    }


def noisy(weights: Weights, share: float = 0.1) -> Weights:
    """Add noise of ``share`` of the norm of every matrix."""
    generator = np.random.default_rng(2)
    return {
        name: array + share * array.std() * generator.standard_normal(array.shape, np.float32)
        if array.ndim > 1
        else array
        for name, array in weights.items()
    }


def poisoned(weights: Weights) -> Weights:
    """Make one weight NaN."""
    name = "model.layers.3.mlp.up_proj.weight"
    poisoned = weights[name].copy()
    poisoned[5, 7] = struct.unpack("<f", b"\0\0\xc0\x7f")[0]
    return weights | {name: poisoned}
