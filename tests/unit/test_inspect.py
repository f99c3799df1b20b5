"""What ``inspect`` reports, where the numbers could be of the wrong thing."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.models import Tensor, small_model, write_model
from tests.support.surgery import Archive
from unweight_codecs.operations.compress import CompressOptions, compress
from unweight_codecs.operations.inspect import inspect_header, inspect_stages
from unweight_codecs.operations.progress import NoProgress

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
