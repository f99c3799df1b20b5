"""Damaged chunks: a status for each, the processor's own verdict, and no byte beyond a buffer.

The simulator ends every buffer at memory that must not be touched, so a wrong access fails a test.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import xxhash

from tests.gpu.support.decoding import Coded, code, decode, lossless
from tests.gpu.support.devices import Device
from tests.gpu.support.matrices import SHAPE, weights
from tests.gpu.support.seeded import Seeded
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import Bytes
from unweight_codecs.payload.directory import chunk_lengths
from unweight_codecs.pipeline import Pipeline
from unweight_codecs.presets import BOUNDED, PRESETS
from unweight_codecs.span import Span
from unweight_codecs.tensor_spec import TensorSpec
from unweight_gpu.decoding.batch import Batch
from unweight_gpu.decoding.records import CHUNK, PACKED, STREAM

PIPELINES = {
    "words": (lossless(1), "BF16", 0.0),
    "halves": (lossless(2), "F16", 0.0),
    "bytes": (lossless(1), "F8_E5M2", 0.0),
    "doubles": (lossless(0), "F64", 0.0),
    "classes": (lossless(1, classes=8), "BF16", 0.0),
    "planes": (PRESETS["fast"], "I16", 0.0),
    "levels": (BOUNDED["default"], "F32", 0.02),
}


@pytest.fixture
def seeded(device: Device) -> Seeded:
    """Return the device, with buffers that end where memory does."""
    return Seeded(device)


@pytest.fixture(params=PIPELINES)
def coded(request: pytest.FixtureRequest) -> Coded:
    """Return a coded tensor of each kind."""
    pipeline, dtype, epsilon = PIPELINES[request.param]
    return code_weights(pipeline, dtype, epsilon)


def code_weights(pipeline: Pipeline, dtype: str, epsilon: float = 0.0) -> Coded:
    spec = TensorSpec("t", dtype, SHAPE)
    return code(pipeline, spec, weights(dtype, SHAPE, spread=3), epsilon)


def sealed(span: Span, data: Bytes) -> Span:
    """Return a span with other coded bytes, and checksums that are theirs."""
    directory = span.directory.copy()
    ends = np.cumsum(chunk_lengths(directory))
    for row, end, length in zip(directory, ends, chunk_lengths(directory), strict=True):
        row["checksum"] = xxhash.xxh3_64_intdigest(data[end - length : end].tobytes())
    return replace(span, coded=data, directory=directory)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes_have_the_verdict_of_the_processor(
    seeded: Seeded, coded: Coded, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    spans = []
    for span in coded.spans:
        data = span.coded.copy()
        places = rng.integers(0, data.size, rng.integers(1, 4))
        if seed % 3 == 0:  # among the states, which change everything after them
            places = rng.integers(0, 128, 1)
        data[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
        spans.append(sealed(span, data))
    for span in spans:
        one = replace(coded, spans=(span,))
        words, status = decode(seeded, one)
        try:
            expected = one.on_host()
        except IntegrityError:
            assert status.any()
        else:
            assert not status.any()
            np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("seed", range(25))
def test_any_description_is_safe(seeded: Seeded, coded: Coded, seed: int) -> None:
    """Whatever offsets, lengths and kinds say, kernels stay inside of their buffers."""
    rng = np.random.default_rng(seed)

    def change(batch: Batch, _: Bytes) -> Batch:
        chunks, streams = batch.chunks.copy(), batch.streams.copy()
        for records, dtype, keep in (
            (chunks, CHUNK, ("tensor", "number")),
            (streams, STREAM, ("chunk",)),
        ):
            for row in records:
                for name in rng.permutation([n for n in dtype.names or () if n not in keep])[:2]:
                    raw = np.frombuffer(rng.bytes(row[name].nbytes), np.uint8).copy()
                    if rng.random() < 0.5:
                        raw[1:] = 0  # small numbers come nearer to the truth
                    if name == "count":
                        raw[2:] = 0  # what is counted is not too long to be tested
                    row[name] = raw.view(row[name].dtype).reshape(np.shape(row[name]))
        return replace(batch, chunks=chunks, streams=streams)

    _, status = decode(seeded, coded, change)
    assert status.max(initial=0) < 6


def test_a_table_that_does_not_sum_up_is_refused(seeded: Seeded, coded: Coded) -> None:
    def change(batch: Batch, _: Bytes) -> Batch:
        frequencies = batch.frequencies.copy()
        frequencies[:, 3] += 1
        return replace(batch, frequencies=frequencies)

    if not len(decode_batch(coded).frequencies):
        pytest.skip("nothing is coded with a table")
    _, status = decode(seeded, coded, change)
    assert (status == 2).any()
    assert set(np.unique(status)) <= {0, 2}


def decode_batch(coded: Coded) -> Batch:
    from unweight_gpu.decoding.batch import BatchBuilder
    from unweight_gpu.device.buffers import BufferPlan

    builder, places = BatchBuilder(), BufferPlan()
    for span in coded.spans:
        builder.add(span, coded.model, places.add(span.coded.size))
    return builder.build()


CUTS: dict[str, tuple[Callable[[np.void], None], int]] = {
    "too few words to refill": (lambda row: _shorten(row["symbol"], 32), 3),
    "words left over": (lambda row: _shorten(row["symbol"], -8), 3),
    "an odd length": (lambda row: _shorten(row["symbol"], 1), 1),
    "no room for states": (lambda row: _set(row["symbol"], "length", 126), 1),
    "beyond the buffer": (lambda row: _set(row["symbol"], "offset", 1 << 40), 1),
    "around the end of addresses": (lambda row: _set(row["symbol"], "offset", 2**64 - 8), 1),
    "not aligned": (lambda row: _shift(row["symbol"], 4), 1),
    "an unknown kind": (lambda row: _set(row["symbol"], "kind", 9), 1),
    "fewer escapes": (lambda row: _shorten(row["escape"], 1), 4),
    "more escapes": (lambda row: _shorten(row["escape"], -1), 4),
    "words beyond the output": (lambda row: _set_row(row, "out", 1 << 40), 1),
    "a short plane": (lambda row: _shorten(row["parts"][0], 1), 1),
}


def _shorten(source: np.void, number: int) -> None:
    source["length"] = int(source["length"]) - number


def _set(source: np.void, name: str, value: int) -> None:
    source[name] = value


def _shift(source: np.void, number: int) -> None:
    source["offset"] = int(source["offset"]) + number


def _set_row(row: np.void, name: str, value: int) -> None:
    row[name] = value


def test_escapes_that_are_not_there_are_not_read(seeded: Seeded) -> None:
    """The list of escapes is empty and begins where the buffer ends."""
    coded = code_weights(lossless(1), "BF16")

    def change(batch: Batch, data: Bytes) -> Batch:
        chunks = batch.chunks.copy()
        chunks["escape"]["offset"], chunks["escape"]["length"] = data.size, 0
        return replace(batch, chunks=chunks)

    _, status = decode(seeded, coded, change)
    assert set(status) == {4}


def test_escapes_where_the_window_holds_every_exponent(seeded: Seeded) -> None:
    """Symbols beyond the window, and escapes for all of them: nothing is missing but the right."""
    coded = code_weights(lossless(0), "F8_E4M3")

    def change(batch: Batch, data: Bytes) -> Batch:
        chunks = batch.chunks.copy()
        data[:128], data[128:256] = 20, 3
        for name, offset, length, bits in (("symbol", 0, 128, 8), ("escape", 128, 128, 8)):
            chunks[name]["kind"], chunks[name]["bits"] = PACKED, bits
            chunks[name]["offset"], chunks[name]["length"] = offset, length
        part = chunks["parts"][:, 0]
        part["kind"], part["bits"], part["offset"], part["length"] = PACKED, 4, 0, 64
        chunks["count"] = 128
        return replace(batch, chunks=chunks)

    _, status = decode(seeded, coded, change)
    assert set(status) == {4}


@pytest.mark.parametrize("name", CUTS)
def test_a_wrong_description_has_its_status(seeded: Seeded, name: str) -> None:
    damage, expected = CUTS[name]
    coded = code_weights(lossless(1), "BF16")

    def change(batch: Batch, _: Bytes) -> Batch:
        chunks = batch.chunks.copy()
        index = int(np.flatnonzero(chunks["number"] == 1)[0])
        damage(chunks[index])
        return replace(batch, chunks=chunks)

    _, status = decode(seeded, coded, change)
    assert status[1] == expected
    assert not np.delete(status, 1).any()
