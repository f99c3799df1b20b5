"""Every command on real files, through the same entry point as the console script."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from unweight_cli.app import run

SHAPES = {
    "model.embed_tokens.weight": (512, 128),
    "model.layers.0.self_attn.q_proj.weight": (128, 128),
    "model.layers.0.mlp.up_proj.weight": (384, 128),
    "model.layers.0.input_layernorm.weight": (128,),
}


def bf16_weights(count: int, seed: int) -> bytes:
    """Return ``count`` normally distributed BF16 values."""
    generator = random.Random(seed)  # noqa: S311 - data for a test
    values = struct.pack(f"<{count}f", *(generator.gauss(0, 0.02) for _ in range(count)))
    return b"".join(values[start + 2 : start + 4] for start in range(0, len(values), 4))


def write_model(path: Path, shapes: dict[str, tuple[int, ...]] = SHAPES) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for seed, (name, shape) in enumerate(shapes.items()):
        start = len(data)
        count = 1
        for extent in shape:
            count *= extent
        data += bf16_weights(count, seed)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors")


@pytest.fixture
def coded(model: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["compress", str(model), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    return model.with_name("model.unweight.safetensors")


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)


def test_compress_and_decompress(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = model.read_bytes()
    assert run(["compress", str(model)]) == 0
    coded = model.with_name("model.unweight.safetensors")
    page = capsys.readouterr()
    for words in (
        "embedding",
        "feed-forward",
        "bit-exact: verified",
        f"unweight decompress {coded}",
    ):
        assert words in page.out
    assert page.err == ""
    assert coded.stat().st_size < 0.75 * len(original)
    model.unlink()
    assert run(["decompress", str(coded)]) == 0
    assert "SHA-256" in capsys.readouterr().out
    assert model.read_bytes() == original


@pytest.mark.parametrize("preset", ["fast", "default", "max"])
def test_presets(preset: str, model: Path, tmp_path: Path) -> None:
    coded, restored = tmp_path / "coded", tmp_path / "restored"
    assert run(["compress", str(model), "-o", str(coded), "--preset", preset, "-q"]) == 0
    assert run(["decompress", str(coded), "-o", str(restored), "--threads", "1", "-q"]) == 0
    assert restored.read_bytes() == model.read_bytes()


def test_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_model(tmp_path / "model" / "model.safetensors").parent
    (source / "config.json").write_text("{}")
    assert run(["compress", str(source)]) == 0
    assert "other files" in capsys.readouterr().out
    assert run(["verify", f"{source}.unweight", "--against", str(source)]) == 0
    assert run(["decompress", f"{source}.unweight", "-o", str(tmp_path / "back"), "-q"]) == 0
    names = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert names == ["config.json", "model.safetensors"]


def test_json_of_the_operations(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded = model.with_name("model.unweight.safetensors")
    restored = model.with_name("restored.safetensors")
    for name, line in {
        "compress": ["compress", str(model)],
        "verify": ["verify", str(coded)],
        "decompress": ["decompress", str(coded), "-o", str(restored)],
    }.items():
        assert run([*line, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["operation"] == name
        (file,) = document["files"]
        assert {tensor["name"] for tensor in file["tensors"]} == set(SHAPES)


def test_an_existing_output_is_kept(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded.write_bytes(b"precious")
    model = coded.with_name("model.safetensors")
    assert run(["compress", str(model)]) == 2
    assert "--force" in capsys.readouterr().err
    assert coded.read_bytes() == b"precious"
    assert run(["compress", str(model), "--force", "-q"]) == 0
    assert run(["verify", str(coded), "-q"]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "fastest"], ("fastest", "fast, default, max")),
        (["--stage", "grid"], ("grid",)),
        (["--stage", "nothing:key=1"], ("nothing",)),
        (["--recipe", "missing.toml"], ("missing.toml",)),
    ],
)
def test_options_that_make_no_sense(
    options: list[str], words: tuple[str, ...], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compress", str(model), *options]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    for word in words:
        assert word in shown.err
    assert [path.name for path in model.parent.iterdir()] == [model.name]


@pytest.mark.parametrize("command", ["compress", "decompress", "verify", "inspect header"])
def test_something_else_than_a_checkpoint(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.safetensors"
    path.write_text("These are not weights, whatever the name says.")
    assert run([*command.split(), str(path)]) == 3
    shown = capsys.readouterr()
    assert str(path) in shown.err
    assert shown.err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_corruption_is_an_integrity_error(
    coded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt(coded)
    restored = tmp_path / "restored.safetensors"
    assert run(["verify", str(coded)]) == 4
    assert run(["decompress", str(coded), "-o", str(restored), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "IntegrityError"
    assert not restored.exists()


def test_another_original_is_an_integrity_error(
    coded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_model(tmp_path / "other.safetensors", {"weight": (64, 64)})
    assert run(["verify", str(coded), "--against", str(other)]) == 4
    assert run(["verify", str(coded), "--against", str(coded.with_name("model.safetensors"))]) == 0
    assert "against" in capsys.readouterr().out


def test_a_target_in_a_directory_that_is_not_there(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "missing" / "out.safetensors"
    assert run(["compress", str(model), "-o", str(target)]) in {2, 6}
    assert "missing" in capsys.readouterr().err


def test_inspect_header(coded: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "header", str(coded)]) == 0
    page = capsys.readouterr().out
    assert "lossless" in page
    assert "pipeline" in page
    assert run(["inspect", "header", str(model)]) == 0
    assert "not written by Unweight" in capsys.readouterr().out


def test_inspect_tensors_sorts_and_cuts(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def names(*options: str) -> list[str]:
        assert run(["inspect", "tensors", str(coded), "--json", *options]) == 0
        return [tensor["name"] for tensor in json.loads(capsys.readouterr().out)["tensors"]]

    assert names("--sort", "name") == sorted(SHAPES)
    assert names("--limit", "1") == ["model.embed_tokens.weight"]
    assert names("--sort", "ratio")[-1] == "model.layers.0.input_layernorm.weight"
    assert len(names("--limit", "0")) == len(SHAPES)


def test_inspect_stages_shows_the_largest_tensor(
    coded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "stages", str(coded)]) == 0
    page = capsys.readouterr().out
    assert page.startswith("The largest coded tensor")
    assert "model.embed_tokens.weight" in page
    assert "█" in page
    assert run(["inspect", "stages", str(coded), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bits_per_element_bound"] <= document["bits_per_element_coded"] < 16


def test_inspect_stages_of_a_named_tensor(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    assert run(["inspect", "stages", str(coded), "--tensor", name]) == 0
    assert capsys.readouterr().out.startswith(name)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("model.layers.0.mlp.up_prj.weight", "did you mean 'model.layers.0.mlp.up_proj.weight'"),
        ("zzz", "no tensor 'zzz'"),
        ("", "no tensor ''"),
    ],
)
def test_inspect_stages_of_an_unknown_tensor(
    tensor: str, words: str, coded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "stages", str(coded), "--tensor", tensor]) == 2
    assert words in capsys.readouterr().err


def test_inspect_stages_of_a_stored_tensor(coded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "model.layers.0.input_layernorm.weight"
    assert run(["inspect", "stages", str(coded), "--tensor", name]) == 3
    assert "stored unchanged" in capsys.readouterr().err


def test_inspect_stages_of_a_file_without_coded_tensors(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "stages", str(model)]) == 2
    assert "no tensor is coded" in capsys.readouterr().err


def test_bench(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", str(model), "--preset", "fast", "--repeats", "1"]
    assert run(line) == 0
    assert "fast" in capsys.readouterr().out
    assert run([*line, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["coded_bytes"] < row["source_bytes"]


def test_a_name_that_would_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "m.safetensors", {"w\x1b[2J\n[red]": (64, 64)})
    assert run(["compress", str(model), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert run(["inspect", "tensors", str(tmp_path / "out")]) == 0
    page = capsys.readouterr().out
    assert "\x1b" not in page
    assert r"w\x1b[2J\n[red]" in page
