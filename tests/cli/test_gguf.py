"""Every command on a GGUF file, through the same entry point as the console script."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.gguf_files import (
    BF16,
    F32,
    Q4_1,
    NewTensor,
    aligned,
    blocks,
    key,
    model_of,
    text,
    vocabulary,
)
from tests.support.models import gaussian
from unweight.containers.gguf.values import ValueType
from unweight_cli.app import run

EMBEDDING, QUERY, NORM = "token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    keys = [
        text(b"general.architecture", b"llama"),
        aligned(64),
        key(b"tokenizer.ggml.tokens", ValueType.ARRAY, vocabulary(1000)),
    ]
    tensors = [
        NewTensor(EMBEDDING.encode(), BF16, (128, 400), gaussian("BF16", (400, 128), 1).data),
        NewTensor(QUERY.encode(), Q4_1, (320, 300), blocks(Q4_1, 3000, 2)),
        NewTensor(NORM.encode(), F32, (128,), gaussian("F32", (128,), 3).data),
    ]
    path = tmp_path / "model.gguf"
    path.write_bytes(model_of(keys, tensors, alignment=64, filler=b"junk"))
    return path


@pytest.fixture
def coded(model: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["compress", str(model), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    return model.with_name("model.unweight.gguf")


def document(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert run([*map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_compress_verify_and_decompress(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = model.read_bytes()
    assert run(["compress", str(model)]) == 0
    page = capsys.readouterr().out
    coded = model.with_name("model.unweight.gguf")
    for words in ("embedding", "attention", "norm", "bit-exact: verified", str(coded)):
        assert words in page
    assert run(["verify", str(coded), "--against", str(model)]) == 0
    assert "bit-exact against the original" in capsys.readouterr().out
    assert coded.stat().st_size < 0.8 * len(original)
    model.unlink()
    assert run(["decompress", str(coded)]) == 0
    assert model.read_bytes() == original


@pytest.mark.parametrize("preset", ["fast", "default", "max"])
def test_presets(preset: str, model: Path, tmp_path: Path) -> None:
    coded, restored = tmp_path / "coded", tmp_path / "restored"
    assert run(["compress", str(model), "-o", str(coded), "--preset", preset, "-q"]) == 0
    assert run(["decompress", str(coded), "-o", str(restored), "--threads", "1", "-q"]) == 0
    assert restored.read_bytes() == model.read_bytes()


def test_json_of_the_operations(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded = model.with_name("model.unweight.gguf")
    lines: dict[str, list[str | Path]] = {
        "compress": [model],
        "verify": [coded],
        "decompress": [coded, "-o", model.with_name("restored.gguf")],
    }
    for name, words in lines.items():
        found = document(capsys, name, *words)
        assert found["operation"] == name
        (file,) = found["files"]
        assert file["container"] == "gguf"
        tensors = {tensor["name"]: tensor for tensor in file["tensors"]}
        assert tensors.keys() == {EMBEDDING, QUERY, NORM}
        assert tensors[QUERY]["dtype"] == "Q4_1"
        assert tensors[QUERY]["shape"] == [300, 320]
        assert tensors[NORM]["pipeline"] == "stored"


def test_inspect_header(model: Path, coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "header", str(coded)]) == 0
    page = capsys.readouterr().out
    for words in ("gguf", "lossless", "pipeline default", "general.architecture", "llama"):
        assert words in page
    found = document(capsys, "inspect", "header", coded)
    assert (found["container"], found["format_version"]) == ("gguf", 1)
    assert found["source_bytes"] == model.stat().st_size
    plain = document(capsys, "inspect", "header", model)
    assert (plain["container"], plain["format_version"]) == ("gguf", 0)


def test_inspect_tensors(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "tensors", str(coded)]) == 0
    page = capsys.readouterr().out
    assert "Q4_1" in page
    assert "300x320" in page
    found = document(capsys, "inspect", "tensors", coded, "--sort", "name")
    assert [tensor["name"] for tensor in found["tensors"]] == [QUERY, NORM, EMBEDDING]


def test_inspect_stages_of_blocks(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["inspect", "stages", str(coded), "--tensor", QUERY]
    assert run(line) == 0
    page = capsys.readouterr().out
    assert page.startswith(QUERY)
    assert "█" in page
    found = document(capsys, *line)
    assert found["bits_per_element_source"] == 20 * 8 / 32
    bound, coded_bits = found["bits_per_element_bound"], found["bits_per_element_coded"]
    assert bound <= coded_bits < found["bits_per_element_source"]
    streams = {stream["name"]: stream for stream in found["streams"]}
    assert list(streams) == ["d.0", "d.1", "m.0", "m.1", "q"]
    assert (streams["q"]["bits"], streams["q"]["values"]) == (4, 300 * 320)
    assert streams["q"]["entropy_bits"] <= streams["q"]["coded_bits"] < 4
    assert [label for label, _ in found["histogram"]] == [str(k) for k in range(16)]
    assert sum(count for _, count in found["histogram"]) == 300 * 320


def test_bench(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", str(model), "--preset", "default", "--repeats", "1"]
    assert run(line) == 0
    assert "default" in capsys.readouterr().out
    (row,) = document(capsys, *line)["rows"]
    assert row["coded_bytes"] < 0.8 * row["source_bytes"]


def test_compressing_twice(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compress", str(coded)]) == 3
    shown = capsys.readouterr().err
    assert "already compressed by Unweight" in shown
    assert shown.count("\n") == 1


def test_corruption(coded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(coded.read_bytes())
    data[-600] ^= 1
    coded.write_bytes(data)
    restored = tmp_path / "restored.gguf"
    assert run(["verify", str(coded)]) == 4
    assert run(["decompress", str(coded), "-o", str(restored), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "IntegrityError"
    assert not restored.exists()


def test_a_file_cut_short(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_bytes(model.read_bytes()[:-5000])
    assert run(["compress", str(model)]) == 3
    shown = capsys.readouterr().err
    assert "missing at the end" in shown
    assert shown.count("\n") == 1
    assert list(model.parent.iterdir()) == [model]


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("model.gguf", "model.unweight.gguf"),
        ("Model.GGUF", "Model.unweight.GGUF"),
        ("a.b-Q4_K_M.gguf", "a.b-Q4_K_M.unweight.gguf"),
    ],
)
def test_default_names(name: str, packed: str, model: Path) -> None:
    source = model.rename(model.with_name(name))
    original = source.read_bytes()
    assert run(["compress", str(source), "-q"]) == 0
    source.unlink()
    assert [path.name for path in model.parent.iterdir()] == [packed]
    assert run(["decompress", str(source.with_name(packed)), "-q"]) == 0
    assert source.read_bytes() == original
