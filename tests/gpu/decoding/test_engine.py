"""Whole files through an engine on a device: what ``--device`` runs, but for CuPy."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.support.devices import Device
from tests.gpu.support.streaming import Streaming
from unweight.archive import ArchiveReader
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.accelerators import CodedSpan, Engine, choice, decode_on_host, registry
from unweight_codecs.errors import IntegrityError, QualityGateError, ResourceError, UsageError
from unweight_gpu.checking.buffer_comparison import BufferComparison
from unweight_gpu.decoding.engine import CudaEngine
from unweight_gpu.device.interface import StreamingDevice

ROOT = Path(__file__).parents[3]
GOLDEN_1_0 = ROOT / "fixtures" / "golden" / "1.0"
LOSSLESS, BOUNDED = GOLDEN_1_0 / "lossless", GOLDEN_1_0 / "bounded"
QUIET = NoProgress()
SMALL_BATCH = 1 << 14  # bytes: a file takes many


Register = Callable[[StreamingDevice], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Return a function that makes a device the one accelerator of this installation."""

    def replace(device: StreamingDevice) -> None:
        class Accelerator:
            name = "cuda"

            def probe(self, number: int = 0) -> tuple[bool, str]:
                return True, "a device"

            def open(self, number: int, threads: int, note: Callable[[str], None] | None) -> Engine:
                return CudaEngine(device, f"cuda:{number}", note, SMALL_BATCH)

        monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
        monkeypatch.setattr(registry, "create_accelerator", lambda name: Accelerator())

    return replace


GOLDEN = sorted(GOLDEN_1_0.glob("*/*.unweight.*"))


def original_of(coded: Path) -> Path:
    """Return the file that a golden file was made from."""
    name, _, rest = coded.name.split(".", 2)
    return coded.parent / f"{name}.{rest.split('.')[-1]}"


@pytest.mark.parametrize("coded", GOLDEN, ids=lambda path: path.name)
def test_golden_files(
    streaming: StreamingDevice, register: Register, coded: Path, tmp_path: Path
) -> None:
    register(streaming)
    restored, expected = tmp_path / "device", tmp_path / "host"
    report = decompress(coded, restored, threads=1, force=False, progress=QUIET, device="cuda")
    assert report.device == "cuda:0"
    decompress(coded, expected, threads=1, force=False, progress=QUIET)
    assert restored.read_bytes() == expected.read_bytes()
    verify(coded, original_of(coded), threads=1, progress=QUIET, device="cuda")


def test_a_device_takes_the_chunks_that_it_can(register: Register, device: Device) -> None:
    """Files that no kernel decodes go through the engine too, so that it must be seen to work."""
    if device.name == "cupy":
        pytest.skip("only the simulator counts")
    streaming = Streaming(device)
    register(streaming)
    verify(
        LOSSLESS / "floats16.default.unweight.safetensors",
        None,
        threads=1,
        progress=QUIET,
        device="cuda",
    )
    assert len(streaming.uploads) == 3
    assert min(streaming.uploads) > 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model of a few chunks, compressed."""
    return compressed(tmp_path, 0.0)


def compressed(folder: Path, epsilon: float) -> Path:
    source, target = LOSSLESS / "floats16.safetensors", folder / "m.safetensors"
    options = CompressOptions(epsilon=epsilon) if epsilon else CompressOptions()
    compress(source, target, options, QUIET)
    return target


@pytest.mark.parametrize("seed", range(6))
def test_damage_is_found(
    streaming: StreamingDevice, register: Register, model: Path, seed: int, tmp_path: Path
) -> None:
    register(streaming)
    data = bytearray(model.read_bytes())
    place = int(np.random.default_rng(seed).integers(len(data) // 2, len(data)))
    data[place] ^= 1
    model.write_bytes(data)
    with pytest.raises(IntegrityError) as on_device:
        decompress(model, tmp_path / "o", threads=1, force=False, progress=QUIET, device="cuda")
    assert not (tmp_path / "o").exists()
    with pytest.raises(IntegrityError) as on_host:
        verify(model, None, threads=1, progress=QUIET)
    assert on_device.value.message == on_host.value.message


def test_a_difference_is_found_where_it_is(
    streaming: StreamingDevice, register: Register, model: Path, tmp_path: Path
) -> None:
    register(streaming)
    other = tmp_path / "other.safetensors"
    data = bytearray((LOSSLESS / "floats16.safetensors").read_bytes())
    data[len(data) // 2] ^= 4
    other.write_bytes(data)
    messages = []
    for device in ("cuda", "cpu"):
        with pytest.raises(IntegrityError) as found:
            verify(model, other, threads=1, progress=QUIET, device=device)
        messages.append(found.value.message)
    assert messages[0] == messages[1]
    assert f"byte {len(data) // 2} of the file" in messages[0]


def test_an_error_is_measured(streaming: StreamingDevice, register: Register) -> None:
    register(streaming)
    model = BOUNDED / "model.default.unweight.safetensors"
    original = BOUNDED / "model.safetensors"
    reports = [
        verify(model, original, threads=1, progress=QUIET, device=device)
        for device in ("cuda", "cpu")
    ]
    errors = [[(row.error, row.max_error) for row in report.files[0].tensors] for report in reports]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-12)


def test_a_large_error_is_refused(
    streaming: StreamingDevice, register: Register, tmp_path: Path
) -> None:
    register(streaming)
    model = BOUNDED / "model.default.unweight.safetensors"
    original = BOUNDED / "model.safetensors"
    other = tmp_path / "other.safetensors"
    data = bytearray(original.read_bytes())
    half = len(data) // 2
    data[half : half + 4096] = bytes(4096)
    other.write_bytes(data)
    with pytest.raises(QualityGateError, match="has the relative error"):
        verify(model, other, threads=1, progress=QUIET, device="cuda")


def spans_of(archive: ArchiveReader, chunks: int) -> list[list[CodedSpan]]:
    """Return the coded tensors of a file as spans."""
    coded = (pair for pair in archive.tensors() if archive.is_coded(pair[0].spec.name))
    return [archive.spans(archive.head(*pair), chunks) for pair in coded]


def test_a_piece_lasts_until_the_next_is_asked_for(streaming: StreamingDevice, model: Path) -> None:
    """Memory is used again: however small the batches, a piece is read before the one after."""
    with ArchiveReader(model) as archive, CudaEngine(streaming, "cuda:0", batch_bytes=1) as engine:
        tensors = spans_of(archive, 1)
        number = 0
        for spans, pieces in zip(tensors, engine.decode(tensors), strict=True):
            for span, piece in zip(spans, pieces, strict=True):
                expected = decode_on_host(span).words
                assert np.array_equal(piece.words, expected)
                assert piece.first_difference(expected) is None
                number += 1
    assert number == 4  # twice as many as there are staging buffers


# ---- Choosing a device


@pytest.mark.parametrize("fails_at", [(1,), (2,), (3,), (1, 2, 3)])
def test_a_device_that_fails_is_not_tried_again(
    device: Device, register: Register, fails_at: tuple[int, ...], tmp_path: Path
) -> None:
    if device.name == "cupy":
        pytest.skip("only the simulator fails on purpose")
    coded = LOSSLESS / "floats16.default.unweight.safetensors"
    notes = list[str]()
    streaming = Streaming(device, fails_at=fails_at)
    register(streaming)
    restored = tmp_path / "restored"
    report = decompress(
        coded,
        restored,
        threads=1,
        force=False,
        progress=QUIET,
        device="auto",
        note=notes.append,
    )
    assert restored.read_bytes() == (LOSSLESS / "floats16.safetensors").read_bytes()
    assert notes == ["decoding on the processor: the device has too little memory"]
    assert report.device == "cuda:0, then cpu"
    assert len(streaming.uploads) == fails_at[0]
    register(Streaming(device, fails_at=fails_at))
    with pytest.raises(ResourceError, match="too little memory"):
        verify(coded, None, threads=1, progress=QUIET, device="cuda")


def test_a_device_that_fails_at_comparing(
    device: Device, register: Register, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.name == "cupy":
        pytest.skip("only the simulator fails on purpose")

    def fails(*_: object) -> None:
        raise ResourceError("the device has too little memory")

    monkeypatch.setattr(BufferComparison, "first_difference", fails)
    register(Streaming(device))
    notes = list[str]()
    original = LOSSLESS / "floats16.safetensors"
    report = verify(model, original, threads=1, progress=QUIET, device="auto", note=notes.append)
    assert notes == ["decoding on the processor: the device has too little memory"]
    assert report.device == "cuda:0, then cpu"
    with pytest.raises(ResourceError, match="too little memory"):
        verify(model, original, threads=1, progress=QUIET, device="cuda")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cpu:0", ""])
def test_a_device_that_there_is_not(name: str) -> None:
    with pytest.raises(UsageError, match="no such device"):
        choice.open_engine(name, 1)


def test_auto_says_why_it_takes_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Accelerator:
        def probe(self, number: int = 0) -> tuple[bool, str]:
            return False, "no driver"

    notes = list[str]()
    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: Accelerator())
    with choice.open_engine("auto", 1, notes.append) as engine:
        assert engine.threads == 1
    assert notes == ["decoding on the processor: cuda: no driver"]


def test_auto_without_any_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[str]()
    monkeypatch.setattr(registry, "accelerator_names", lambda: ())
    choice.open_engine("auto", 1, notes.append)
    assert notes == ["decoding on the processor: no accelerator is installed"]


def test_auto_survives_a_device_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    class Accelerator:
        def probe(self, number: int = 0) -> tuple[bool, str]:
            return True, "a device"

        def open(self, number: int, threads: int, note: object) -> Engine:
            raise ResourceError("the kernels do not compile")

    notes = list[str]()
    monkeypatch.setattr(registry, "accelerator_names", lambda: ("cuda",))
    monkeypatch.setattr(registry, "create_accelerator", lambda name: Accelerator())
    with choice.open_engine("auto", 1, notes.append) as engine:
        assert engine.name == "cpu"
    assert notes == ["decoding on the processor: the kernels do not compile"]
    with pytest.raises(ResourceError, match="do not compile"):
        choice.open_engine("cuda", 1, notes.append)
