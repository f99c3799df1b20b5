"""What ``inspect`` reports, where the numbers could be of the wrong thing."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.gguf_files import NewTensor, centred_blocks, model_of
from tests.support.models import Tensor, small_model, write_model
from tests.support.surgery import Archive
from unweight.containers.gguf.ggml_types import type_id_of
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.inspect.header import inspect_header, inspect_stages
from unweight.operations.progress import NoProgress
from unweight_codecs.layouts.contexts import CONTEXTS, PREDICTED
from unweight_codecs.tensor_spec import BLOCK_DTYPES

QUIET = NoProgress()
ELEMENTS = 8192
BITS = {"BF16": 16, "C64": 64, "F6_E2M3": 6, "F4": 4, "I32": 32}


@pytest.mark.parametrize("dtype", BITS)
def test_bits_are_those_of_an_element(tmp_path: Path, dtype: str) -> None:
    size = ELEMENTS * BITS[dtype] // 8
    data = np.random.default_rng(1).integers(60, 64, size).astype(np.uint8).tobytes()
    tensors = {"weight": Tensor(dtype, (ELEMENTS // 64, 64), data)}
    source = write_model(tmp_path / "model.safetensors", tensors)
    compress(source, tmp_path / "packed", CompressOptions(), QUIET)
    report = inspect_stages(tmp_path / "packed", "weight")
    assert report.bits_per_element_source == BITS[dtype]
    assert report.bits_per_element_coded == 8 * report.tensor.coded_bytes / ELEMENTS
    assert report.bits_per_element_bound < report.bits_per_element_coded < BITS[dtype]


@pytest.mark.parametrize("name", PREDICTED)
def test_entropies_of_blocks_are_those_of_their_contexts(tmp_path: Path, name: str) -> None:
    source, packed = tmp_path / "model.gguf", tmp_path / "packed.gguf"
    data = centred_blocks(name, 0)
    rows = len(data) // BLOCK_DTYPES[name].block_bytes
    source.write_bytes(model_of([], [NewTensor(b"weight", type_id_of(name), (32, rows), data)]))
    compress(source, packed, CompressOptions(), QUIET)
    report = inspect_stages(packed, "weight")
    facts = report.stages[1].facts
    assert all(facts[f"tables for {stream}"] == CONTEXTS for stream in PREDICTED[name])
    streams = {stream.name: stream for stream in report.streams}
    quants = streams["q"]
    assert 0.97 * quants.coded_bits < quants.entropy_bits < quants.coded_bits
    assert streams["m.1"].coded_bits < 4


def test_the_header_names_the_version_of_the_file(tmp_path: Path) -> None:
    packed = tmp_path / "packed.safetensors"
    compress(small_model(tmp_path / "model.safetensors"), packed, CompressOptions(), QUIET)
    archive = Archive.read(packed)
    archive.manifest["format"] = [1, 7]
    report = inspect_header(archive.write(tmp_path / "newer.safetensors"))
    assert (report.format_version, report.format_minor) == (1, 7)


def test_rows_name_the_pipeline_of_each_tensor(tmp_path: Path) -> None:
    packed = tmp_path / "packed.safetensors"
    compress(small_model(tmp_path / "model.safetensors"), packed, CompressOptions("max"), QUIET)
    found = {row.name: row.pipeline for row in inspect_header(packed).tensors}
    assert found["embed.weight"] == "max"
    assert found["noise"] == "stored"
