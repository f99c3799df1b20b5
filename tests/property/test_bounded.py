"""Any floats through any error-bounded pipeline stay within the bound; damage is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import bounded
from tests.support.generated import MUTATIONS, UNTIMED, Mutation, check_damaged
from tests.support.models import Tensor, write_model
from unweight.operations.compress import CompressOptions, compress
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight.operations.verify import verify
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import BOUNDED
from unweight_codecs.tensor_spec import TensorSpec

pytestmark = pytest.mark.usefixtures("without_fsync")

LARGEST = {"F16": 65_504.0, "BF16": 3.3e38, "F32": 3.4e38}
QUIET = NoProgress()

SHAPES = st.one_of(
    st.tuples(st.integers(1, 90), st.integers(1, 90)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 64)),
    st.tuples(st.integers(32, 80), st.sampled_from((32, 33, 64, 100))),
)
SPECS = st.builds(TensorSpec, st.just("t"), st.sampled_from(bounded.FLOATS), SHAPES)
EPSILONS = st.one_of(
    st.sampled_from((1e-8, 1e-3, 0.0054, 0.1, 0.5, 1.0)),
    st.floats(-7, 0).map(lambda exponent: 10**exponent),
)
PIPELINES = st.one_of(
    st.sampled_from(sorted(BOUNDED)).map(BOUNDED.__getitem__),
    st.builds(
        lambda tau, spacing, tables, rank, tile: bounded.pipeline(
            tau=tau, spacing=spacing, tables=tables, rank=rank, tile=tile
        ),
        st.sampled_from((0, 0.5, 2, 4.5)),
        st.sampled_from(("auto", "uniform", "cdf", "lloyd")),
        st.integers(1, 64),
        st.integers(0, 16),
        st.sampled_from((0, 16, 33, 1000)),
    ),
)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape)


def _rows(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    scales = np.exp2(rng.uniform(-20, 0, shape[:1]))
    return rng.normal(0, 1, shape) * scales.reshape(-1, *(1,) * (len(shape) - 1))


def _heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return rng.standard_t(1.5, shape)


def _few(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return rng.choice(rng.normal(0, 1, int(rng.integers(1, 6))), shape)


def _sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.where(rng.random(shape) < rng.choice([0.001, 0.1]), rng.normal(0, 1, shape), 0)


def _low_rank(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    factors = rng.normal(0, 1, (*shape[:-1], 1)) * rng.normal(0, 1, shape[-1])
    return factors + rng.normal(0, 10 ** rng.uniform(-5, 0), shape)


def _ramp(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(math.prod(shape)).reshape(shape) / rng.integers(1, 100)


CONTENTS = (_normal, _rows, _heavy, _few, _sparse, _low_rank, _ramp)


def words_of(spec: TensorSpec, kind: int, seed: int, octave: float, *, specials: bool) -> Bytes:
    """Return weights times 2**octave, perhaps with words that are no numbers."""
    values = CONTENTS[kind](np.random.default_rng(seed), spec.shape) * 2.0**octave
    largest = LARGEST[spec.dtype]
    words = bounded.words_of(values.clip(-largest, largest), spec.dtype)
    return bounded.with_specials(words, spec.dtype, 5) if specials else words


def random_words(spec: TensorSpec, seed: int) -> Bytes:
    size = spec.elements * bounded.SIZES[spec.dtype]
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


@settings(UNTIMED, max_examples=200)
@given(
    spec=SPECS,
    kind=st.integers(-1, len(CONTENTS) - 1),
    seed=st.integers(0, 1 << 32),
    octave=st.sampled_from((0.0, -6.0, 10.0, -100.0, 100.0, -140.0, 127.0)),
    specials=st.booleans(),
    epsilon=EPSILONS,
    pipe=PIPELINES,
)
def test_tensors(
    decode_payload: Callable[..., bytes],
    spec: TensorSpec,
    kind: int,
    seed: int,
    octave: float,
    specials: bool,
    epsilon: float,
    pipe: Pipeline,
) -> None:
    if kind < 0:
        words = random_words(spec, seed)
    else:
        words = words_of(spec, kind, seed, octave, specials=specials)
    coded = bounded.encoded(pipe, spec, words, epsilon)
    decoded = np.frombuffer(decode_payload(pipe, spec, coded), np.uint8)
    chunk_words = bounded.model_of(pipe, spec, coded).chunk_words
    whole, chunks = bounded.relative_errors(words, decoded, spec.dtype, chunk_words)
    assert max(whole, *chunks) <= epsilon
    # A word takes a symbol, 7 low bits and itself at most; more is tables, steps and padding.
    assert len(coded) < words.size + 2 * spec.elements + 4096


@settings(UNTIMED, max_examples=40)
@given(
    drawn=st.lists(
        st.tuples(SPECS, st.integers(0, len(CONTENTS) - 1), st.integers(0, 1 << 32)), max_size=3
    ),
    preset=st.sampled_from(sorted(BOUNDED)),
    epsilon=EPSILONS,
    threads=st.integers(1, 3),
)
def test_files(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[TensorSpec, int, int]],
    preset: str,
    epsilon: float,
    threads: int,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    tensors = {
        f"tensor.{k}": Tensor(
            spec.dtype, spec.shape, words_of(spec, kind, seed, 0.0, specials=k == 1).tobytes()
        )
        for k, (spec, kind, seed) in enumerate(drawn)
    }
    source = write_model(folder / "m.safetensors", tensors)
    coded, back = folder / "coded", folder / "back"
    options = CompressOptions(preset=preset, epsilon=epsilon, threads=threads)
    report = compress(source, coded, options, QUIET)
    verified = verify(coded, source, threads=threads, progress=QUIET)
    assert all(row.error <= row.epsilon for row in verified.files[0].tensors)
    restored = decompress(coded, back, threads=threads, force=False, progress=QUIET)
    assert restored.files[0].restored_sha256 == report.files[0].restored_sha256
    assert back.stat().st_size == source.stat().st_size
    assert coded.stat().st_size <= source.stat().st_size + 4096 + 600 * len(tensors)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of bounded tensors of every kind; what it restores to lies beside it."""
    folder = tmp_path_factory.mktemp("archive")
    shape = (96, 64)
    weights = {
        "normal": bounded.with_specials(bounded.words_of(bounded.normal(shape, 0), "BF16"), "BF16"),
        "few": bounded.words_of(bounded.few((64, 60), 1), "BF16"),
        "factors": bounded.words_of(bounded.low_rank(shape, 1, 2, 0.01), "BF16"),
    }
    tensors = {
        name: Tensor("BF16", (64, 60) if name == "few" else shape, words.tobytes())
        for name, words in weights.items()
    }
    source = write_model(folder / "model.safetensors", tensors, {"format": "pt"})
    compress(source, folder / "coded", CompressOptions(preset="max", epsilon=0.004), QUIET)
    decompress(folder / "coded", folder / "restored", threads=1, force=False, progress=QUIET)
    return folder / "coded"


@settings(UNTIMED, max_examples=150)
@given(mutations=MUTATIONS)
def test_damaged_files(
    archive: Path, tmp_path_factory: pytest.TempPathFactory, mutations: list[Mutation]
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    check_damaged(archive, archive.with_name("restored"), mutations, folder)
