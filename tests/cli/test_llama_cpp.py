"""The real llama.cpp: it refuses packed files, and generates the same from restored ones.

Needs the extra ``llama``. Every load runs in a process of its own, on one thread: ggml lets its
threads spin, which takes very long on a busy machine.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quantize
from numpy.typing import NDArray

from unweight.containers.base import FileSource
from unweight.containers.safetensors import read_index
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None,
        reason="xllamacpp is not installed: pip install 'unweight[llama]'",
    ),
]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "fixtures" / "models" / "tiny-llama"
REAL = ROOT.parent / "shared" / "real" / "stories260K-restored" / "gguf"
SECONDS = 600

# Prints the result of greedy decoding, with the probabilities of the likeliest tokens.
GENERATE = """
import json, sys
import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx = 256
parameters.n_parallel = 1
parameters.warmup = False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
request = {"prompt": [3, 77, 200, 41], "n_predict": 48, "temperature": 0, "logprobs": 3}
print("\\nRESULT " + json.dumps(server.handle_completions(request)["choices"]))
"""

# A type per layer: what llama.cpp has kernels for and the gguf package can write.
LAYER_TYPES = ("BF16", "F16", "Q8_0", "Q4_1", "Q5_1", "Q4_0")
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_weights() -> dict[str, NDArray[np.float32]]:
    """Return the weights of the trained model among the fixtures."""
    weights = {}
    with FileSource(TINY / "model.safetensors") as source:
        for entry in read_index(source).tensors:
            words = np.frombuffer(source.read_at(entry.offset, entry.nbytes), "<u2")
            values = (words.astype("<u4") << 16).view("<f4")
            weights[entry.spec.name] = values.reshape(entry.spec.shape)
    return weights


def rotated(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return the rows of a query or key projection in the order in which llama.cpp rotates them."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def write_tiny(path: Path) -> Path:
    """Write the trained model as GGUF, each layer in another type."""
    config: dict[str, Any] = json.loads((TINY / "config.json").read_text())
    heads, pairs = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(pairs)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_tokenizer_model("llama")
    words = [f"<{number}>" for number in range(config["vocab_size"])]  # tells every token apart
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types([TokenType.NORMAL] * len(words))

    def add(name: str, weight: NDArray[np.float32], dtype: str) -> None:
        kind = GGMLQuantizationType[dtype]
        writer.add_tensor(f"{name}.weight", quantize(weight, kind), raw_dtype=kind)

    weights = tiny_weights()
    add("token_embd", weights["model.embed_tokens.weight"], "Q8_0")
    add("output_norm", weights["model.norm.weight"], "F32")
    for layer, dtype in enumerate(LAYER_TYPES):
        for theirs, ours in NAMES.items():
            weight = weights[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                weight = rotated(weight, heads if ours == "attn_q" else pairs)
            add(f"blk.{layer}.{ours}", weight, dtype if weight.ndim > 1 else "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama_cpp(model: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", GENERATE, str(model)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def generated(model: Path) -> list[dict[str, Any]]:
    """Return what llama.cpp generates, its probabilities included."""
    run = llama_cpp(model)
    assert run.returncode == 0, run.stderr
    choices: list[dict[str, Any]] = json.loads(run.stdout.rpartition("\nRESULT ")[2])
    assert len(choices[0]["logprobs"]["content"]) == 48
    return choices


def copy_of(name: str) -> Callable[[Path], Path]:
    def copy(path: Path) -> Path:
        if not (REAL / name).is_file():
            pytest.skip("the real models are not beside this checkout")
        path.write_bytes((REAL / name).read_bytes())
        return path

    return copy


MODELS: dict[str, Callable[[Path], Path]] = {"tiny-llama": write_tiny} | {
    dtype: copy_of(f"stories260K-{dtype}.gguf")
    for dtype in ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q4_0")
}


@pytest.mark.parametrize("model", MODELS)
def test_llama_cpp(model: str, tmp_path: Path) -> None:
    source = MODELS[model](tmp_path / "model.gguf")
    coded, restored = tmp_path / "coded.gguf", tmp_path / "restored.gguf"
    compress(source, coded, CompressOptions(preset="max"), NoProgress())
    assert coded.stat().st_size < source.stat().st_size
    decompress(coded, restored, threads=2, force=False, progress=NoProgress())
    assert generated(restored) == generated(source)
    refusal = llama_cpp(coded)
    assert refusal.returncode != 0
    assert "unknown model architecture: 'unweight'" in refusal.stderr + refusal.stdout
