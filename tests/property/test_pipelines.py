"""Any tensor through any pipeline comes back; any damaged file is refused or harmless."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.generated import MUTATIONS, UNTIMED, Mutation, check_damaged
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.exact.bit_exact import BitExact
from unweight_codecs.exact.exponent_window import ExponentWindow
from unweight_codecs.exact.histogram_grid import HistogramGrid
from unweight_codecs.exact.scale_classes import ScaleClasses
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.pack import Pack
from unweight_codecs.pipeline import Pipeline, pipeline_of
from unweight_codecs.presets import PRESETS
from unweight_codecs.tensor_spec import DTYPES, TensorSpec

pytestmark = pytest.mark.usefixtures("without_fsync")

MAX_BYTES = 40_000

SHAPES = st.one_of(
    st.just(()),
    st.tuples(st.integers(1, 5000)),
    st.tuples(st.integers(1, 100), st.integers(1, 100)),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 64)),
    st.tuples(st.integers(16, 80), st.sampled_from((16, 17, 64, 128))),
)


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    """Draw a tensor of a few bytes to a few chunks."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape: tuple[int, ...] = draw(SHAPES)
    bits = DTYPES[dtype].bits
    while math.prod(shape) * bits // 8 > MAX_BYTES:
        shape = (max(1, shape[0] // 2), *shape[1:])
    if math.prod(shape) * bits % 8:
        shape = (*shape, 8)
    return TensorSpec("t", dtype, shape)


def _uniform(rng: np.random.Generator, size: int) -> Bytes:
    return rng.integers(0, 256, size, np.uint8)


def _skewed(rng: np.random.Generator, size: int) -> Bytes:
    return np.minimum(rng.geometric(rng.uniform(0.02, 0.9), size), 255).astype(np.uint8)


def _few_values(rng: np.random.Generator, size: int) -> Bytes:
    return rng.choice(_uniform(rng, int(rng.integers(1, 5))), size)


def _runs(rng: np.random.Generator, size: int) -> Bytes:
    return _uniform(rng, size // 500 + 1).repeat(500)[:size]


def _weights(rng: np.random.Generator, size: int) -> Bytes:
    scales = np.exp2(rng.normal(-4, 3, size // 64 + 1)).repeat(16)[: size // 4 + 1]
    values = (rng.normal(0, 1, scales.size) * scales).astype("<f4")
    kinds = (values, values.astype("<f2"), values.astype("<f8"), values.view("<u2")[1::2].copy())
    return np.resize(kinds[int(rng.integers(0, len(kinds)))].view(np.uint8), size)


def _half_and_half(rng: np.random.Generator, size: int) -> Bytes:
    return np.concatenate([_weights(rng, size // 2), _uniform(rng, size - size // 2)])


CONTENTS = (_uniform, _skewed, _few_values, _runs, _weights, _half_and_half)


def content(spec: TensorSpec, kind: int, seed: int) -> Bytes:
    with np.errstate(over="ignore"):
        return CONTENTS[kind](np.random.default_rng(seed), spec.nbytes)


PIPELINES = st.one_of(
    st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__),
    st.builds(
        lambda base, m, most, tables, classes, chunk: pipeline_of(
            "drawn",
            (
                ExponentWindow(base),
                HistogramGrid(m, most, tables),
                ScaleClasses(classes),
                BitExact(),
                Pack(chunk),
            ),
        ),
        st.integers(-1, 300),
        st.integers(-1, 3),
        st.integers(0, 3),
        st.integers(1, 64),
        st.integers(1, 16),
        st.integers(12, 17),
    ),
)


@settings(UNTIMED, max_examples=150)
@given(
    spec=specs(),
    kind=st.integers(0, len(CONTENTS) - 1),
    seed=st.integers(0, 1 << 32),
    pipeline=PIPELINES,
)
def test_tensors(
    encode_payload: Callable[..., bytes],
    decode_payload: Callable[..., bytes],
    spec: TensorSpec,
    kind: int,
    seed: int,
    pipeline: Pipeline,
) -> None:
    data = content(spec, kind, seed)
    coded = encode_payload(pipeline, spec, data)
    assert decode_payload(pipeline, spec, coded) == data.tobytes()
    assert len(coded) < 1.02 * data.size + 4096  # noise grows by tables and padding at most


@settings(UNTIMED, max_examples=40)
@given(
    drawn=st.lists(st.tuples(specs(), st.integers(0, 5), st.integers(0, 1 << 32)), max_size=4),
    preset=st.sampled_from(sorted(PRESETS)),
    chunk_log2=st.integers(12, 17),
    threads=st.integers(1, 3),
    metadata=st.none() | st.dictionaries(st.text(max_size=9), st.text(max_size=20), max_size=2),
)
def test_files(
    tmp_path_factory: pytest.TempPathFactory,
    write_model: Callable[..., Path],
    drawn: list[tuple[TensorSpec, int, int]],
    preset: str,
    chunk_log2: int,
    threads: int,
    metadata: dict[str, str] | None,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    tensors = [
        (f"tensor.{k}", spec.dtype, spec.shape, content(spec, kind, seed).tobytes())
        for k, (spec, kind, seed) in enumerate(drawn)
    ]
    source = write_model(folder / "m.safetensors", tensors, metadata)
    coded, back = folder / "coded", folder / "back"
    stages = (f"pack:chunk_log2={chunk_log2}",)
    options = CompressOptions(preset=preset, stages=stages, threads=threads)
    compress(source, coded, options, NoProgress())
    verify(coded, source, threads=threads, progress=NoProgress())
    decompress(coded, back, threads=threads, force=False, progress=NoProgress())
    assert back.read_bytes() == source.read_bytes()
    assert coded.stat().st_size <= source.stat().st_size + 4096 + 400 * len(tensors)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, write_model: Callable[..., Path]) -> Path:
    """Return an archive with coded, stored, tiny and empty tensors; its original lies beside it."""
    folder = tmp_path_factory.mktemp("archive")
    rng = np.random.default_rng(0)
    tensors = [
        ("weights", "BF16", (96, 64), _weights(np.random.default_rng(4), 96 * 64 * 2).tobytes()),
        ("more", "F32", (40, 64), _weights(np.random.default_rng(5), 40 * 64 * 4).tobytes()),
        ("noise", "U8", (900,), rng.bytes(900)),
        ("counts", "I32", (1500,), rng.integers(0, 9, 1500, np.int32).tobytes()),
        ("tiny", "F16", (), b"\1\2"),
        ("empty", "F16", (0,), b""),
    ]
    source = write_model(folder / "original", tensors, {"format": "pt"})
    options = CompressOptions(preset="max", stages=("pack:chunk_log2=12",))
    compress(source, folder / "coded", options, NoProgress())
    return folder / "coded"


@settings(UNTIMED, max_examples=250)
@given(mutations=MUTATIONS)
def test_damaged_files(
    archive: Path, tmp_path_factory: pytest.TempPathFactory, mutations: list[Mutation]
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    check_damaged(archive, archive.with_name("original"), mutations, folder)
