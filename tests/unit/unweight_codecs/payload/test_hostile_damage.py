"""Random damage to payloads of every kind: refused, or bytes that the tensor's digest rejects."""

import numpy as np
import pytest

from tests.support import bounded
from tests.support.hostile import CHUNK, KINDS, SPEC
from tests.support.payloads import decoded, head_length, resealed
from unweight_codecs.errors import FormatError, IntegrityError, UnweightError
from unweight_codecs.payload.head import parse_head

# Of 600 rounds. Most factors are as good as others, and they are most of their head.
LEAST_REFUSED = {"plain": 500, "contexts": 500, "low_bits": 500, "table": 500, "factors": 200}


@pytest.mark.parametrize("kind", KINDS)
def test_sealing_changes_nothing(kind: str) -> None:
    coded, parts = KINDS[kind].encoded(), KINDS[kind].parts()
    assert parts.seal() == coded
    words, restored = KINDS[kind].weights(), np.frombuffer(parts.decode(), np.uint8)
    whole, _ = bounded.relative_errors(words, restored, "BF16", CHUNK)
    assert whole <= KINDS[kind].epsilon
    assert KINDS[kind].epsilon or np.array_equal(words, restored)


@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_of_the_head_is_guarded(kind: str) -> None:
    """The one place that tries all of them: the parser is where the head's checksum is compared."""
    coded = KINDS[kind].encoded()
    head = bytearray(coded[: head_length(coded)])
    parse_head(bytes(head))
    for bit in range(8 * len(head)):
        head[bit // 8] ^= 1 << bit % 8
        with pytest.raises(IntegrityError):
            parse_head(bytes(head))
        head[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_bit_of_every_byte_of_the_head_when_decoding(kind: str) -> None:
    pipeline, coded = KINDS[kind].pipeline, KINDS[kind].encoded()
    for bit in range(list(KINDS).index(kind), 8 * head_length(coded), 7):
        changed = bytearray(coded)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((IntegrityError, FormatError)):
            decoded(pipeline, SPEC, bytes(changed))


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_behind_right_checksums(kind: str) -> None:
    """Whatever a head says, the outcome is an error of ours or bytes for the digest to reject."""
    pipeline, coded = KINDS[kind].pipeline, KINDS[kind].encoded()
    length = head_length(coded)
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(600):
        head = bytearray(coded[:length])
        for at in rng.integers(16, length, rng.integers(1, 4)).tolist():
            head[at] = int(rng.integers(0, 256))
        try:
            words = decoded(pipeline, SPEC, resealed(bytes(head)) + coded[length:])
        except UnweightError:
            refused += 1
        else:
            assert len(words) == SPEC.nbytes
    assert refused > LEAST_REFUSED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_random_damage_of_chunks_behind_right_checksums(each_kernel: str, kind: str) -> None:
    parts = KINDS[kind].parts()
    undamaged = parts.segments
    rng = np.random.default_rng(2)
    for _ in range(60 if each_kernel == "reference" else 200):  # it takes ten times as long
        parts.segments = [list(chunk) for chunk in undamaged]
        segments = parts.segments[int(rng.integers(0, len(undamaged)))]
        stream = int(rng.integers(0, len(segments)))
        data = bytearray(segments[stream])
        if data:
            data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
        segments[stream] = bytes(data)
        try:
            words = parts.decode()
        except IntegrityError:
            continue
        assert len(words) == SPEC.nbytes
