"""``--device`` on the command line, where the one accelerator decodes on the processor."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from unweight_cli.app import run
from unweight_codecs.accelerators import CodedSpan, CpuEngine, Engine, Piece, registry

ROOT = Path(__file__).parents[2]
CODED = ROOT / "fixtures" / "golden" / "1.0" / "lossless" / "floats16.default.unweight.safetensors"
ORIGINAL = ROOT / "fixtures" / "golden" / "1.0" / "lossless" / "floats16.safetensors"


class Elsewhere:
    """An engine that counts what it is given; all else is that of the processor."""

    span_chunks = 3

    def __init__(self, name: str, decoded: list[int]) -> None:
        self.name, self.threads, self._decoded, self._engine = name, 1, decoded, CpuEngine(1)

    def decode(self, tensors: Iterable[Sequence[CodedSpan]]) -> Iterator[Iterator[Piece]]:
        def counted() -> Iterator[Sequence[CodedSpan]]:
            for spans in tensors:
                self._decoded.append(len(spans))
                assert all(len(span.directory) <= self.span_chunks for span in spans)
                yield spans

        return self._engine.decode(counted())

    def __enter__(self) -> "Elsewhere":
        return self

    def __exit__(self, *error: object) -> None:
        self._engine.__exit__(None, None, None)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Register the accelerator; returns the spans of every tensor that its engines were given."""
    found = list[int]()

    class Accelerator:
        def probe(self, number: int = 0) -> tuple[bool, str]:
            return True, "a device"

        def open(self, number: int, threads: int, note: Callable[[str], None] | None) -> Engine:
            return Elsewhere(f"cuda:{number}", found)

    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: Accelerator())
    return found


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "auto"])
def test_decompress(
    decoded: list[int], device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "restored.safetensors"
    line = ["decompress", str(CODED), "-o", str(target), "--device", device]
    assert run([*line, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["device"] == ("cuda:1" if device == "cuda:1" else "cuda:0")
    assert target.read_bytes() == ORIGINAL.read_bytes()
    assert decoded
    assert run([*line, "--force"]) == 0
    assert f"1 thread, {document['device']}\n" in capsys.readouterr().out


def test_verify(decoded: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["verify", str(CODED), "--against", str(ORIGINAL), "--device", "cuda"]
    assert run(line) == 0
    assert "1 thread, cuda:0\n" in capsys.readouterr().out
    assert decoded


def test_bench(decoded: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", str(ORIGINAL), "--repeats", "1", "--device", "cuda:2"]
    assert run([*line, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["device"] == "cuda:2"
    assert all(row["device_bytes"] and row["device_seconds"] for row in document["rows"])
    assert decoded
    assert run(line) == 0
    out = capsys.readouterr().out
    assert "cuda:2" in out.splitlines()[1]
    assert "cuda:2: words per second of the clock" in out


def test_the_processor_is_the_default(
    decoded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", str(CODED), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "cpu"
    assert run(["bench", str(ORIGINAL), "--repeats", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == ""
    assert not decoded


@pytest.mark.parametrize("command", ["decompress", "verify", "bench"])
@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:", "CUDA", ""])
def test_a_device_that_there_is_not(
    decoded: list[int], command: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ORIGINAL if command == "bench" else CODED
    assert run([command, str(path), f"--device={device}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("unweight: error: --device: no such device: ")
    assert error.endswith("(one of auto, cpu, cuda, cuda:N)\n")


@pytest.mark.parametrize("command", ["decompress", "verify", "bench"])
def test_auto_without_a_device(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        def probe(self, number: int = 0) -> tuple[bool, str]:
            raise OSError("libcuda is of another version")

    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: Broken())
    path = ORIGINAL if command == "bench" else CODED
    target = ["-o", str(tmp_path / "o.safetensors")] if command == "decompress" else []
    repeats = ["--repeats", "1"] if command == "bench" else []
    assert run([command, str(path), *target, *repeats, "--device", "auto"]) == 0
    assert capsys.readouterr().err == (
        "unweight: note: decoding on the processor: cuda: OSError: libcuda is of another version\n"
    )
