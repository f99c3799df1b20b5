"""Frequency tables: exact sums, integer code lengths, and their bytes in a file."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from unweight_codecs.entropy.frequencies import (
    cluster,
    code_lengths,
    costs,
    normalise,
    parse,
    serialise,
    serialised_sizes,
)
from unweight_codecs.errors import IntegrityError
from unweight_codecs.kernels.operands import ALPHABET, COST_BITS, SLOTS


def histogram(*counts: int) -> NDArray[np.int64]:
    row = np.zeros((1, ALPHABET), np.int64)
    row[0, : len(counts)] = counts
    return row


HISTOGRAMS = {
    "one symbol": histogram(7),
    "two equal": histogram(5, 5),
    "one of a trillion": histogram(10**12, 1),
    "every symbol once": histogram(*[1] * ALPHABET),
    "one rules, all occur": histogram(10**9, *[1] * (ALPHABET - 1)),
    "two rule, all occur": histogram(10**9, 10**9, *[1] * (ALPHABET - 2)),
    "thirds": histogram(1, 1, 1),
    "powers": histogram(*[1 << k for k in range(40)]),
    "last symbol only": histogram(*[0] * (ALPHABET - 1), 3),
    "primes": histogram(2, 3, 5, 7, 11, 13, 17, 19, 23, 29),
}


def random_histograms(rows: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(rows)
    counts = np.floor(np.exp(rng.uniform(0, 20, (rows, ALPHABET)))).astype(np.int64)
    counts[rng.random((rows, ALPHABET)) < rng.random((rows, 1))] = 0
    return counts


@pytest.mark.parametrize("counts", HISTOGRAMS.values(), ids=HISTOGRAMS.keys())
def test_frequencies_sum_to_4096_and_keep_every_used_symbol(counts: NDArray[np.int64]) -> None:
    (frequencies,) = normalise(counts)
    assert frequencies.sum(dtype=np.int64) == SLOTS
    assert np.array_equal(frequencies > 0, counts[0] > 0)


def test_rows_are_normalised_independently() -> None:
    counts = random_histograms(64)
    together = normalise(counts)
    assert (together.sum(axis=1, dtype=np.int64) == SLOTS).all()
    for row, expected in zip(counts, together, strict=True):
        assert np.array_equal(normalise(row[None])[0], expected)


def test_a_row_without_counts_gives_all_to_symbol_zero() -> None:
    assert np.flatnonzero(normalise(histogram())[0]).tolist() == [0]


def test_frequencies_are_close_to_proportional() -> None:
    counts = random_histograms(32)
    exact = counts * SLOTS / counts.sum(axis=1, keepdims=True)
    difference = normalise(counts) - exact
    assert difference.max() <= 1  # what the minimum of one adds comes from the largest


def test_code_lengths_are_logarithms_in_fixed_point() -> None:
    lengths = code_lengths()
    for frequency in range(1, SLOTS + 1):
        exact = math.log2(SLOTS / frequency) * (1 << COST_BITS)
        assert abs(int(lengths[frequency]) - exact) <= 2, frequency
    assert lengths[SLOTS] == 0
    assert lengths[1] == 12 << COST_BITS
    assert lengths[0] > lengths[1]


@pytest.mark.parametrize("counts", HISTOGRAMS.values(), ids=HISTOGRAMS.keys())
def test_costs_bound_the_entropy(counts: NDArray[np.int64]) -> None:
    share = counts[0][counts[0] > 0] / counts.sum()
    entropy = float(-(share * np.log2(share)).sum() * counts.sum())
    cost = int(costs(counts, normalise(counts))[0])
    assert cost >= entropy * 0.999
    assert cost <= entropy * 1.1 + 0.1 * counts.sum() + 1


def test_tables_come_back_from_their_bytes(each_kernel: str) -> None:
    tables = normalise(np.concatenate([*HISTOGRAMS.values(), random_histograms(50)]))
    data = serialise(tables)
    each = [serialise(row[None]) for row in tables]
    assert b"".join(each) == data
    assert [len(one) for one in each] == serialised_sizes(tables).tolist()
    at = 2
    for number in (0, 1, 4, len(tables) - 5):
        first = at
        parsed, at = parse(b"??" + data + b"?", first, number)
        assert serialise(parsed) == data[first - 2 : at - 2]
    assert at == 2 + len(data)
    assert np.array_equal(parse(data, 0, len(tables))[0], tables)


@pytest.mark.parametrize(
    ("frequencies", "expected"),
    [
        ({0: 2048, 2: 2048}, b"\x00\x02\x80\x10\x00\x80\x10"),
        ({3: 4096}, b"\x03\x03\x80\x20"),
        ({255: 4096}, b"\xff\xff\x80\x20"),
        ({254: 127, 255: 3969}, b"\xfe\xff\x7f\x81\x1f"),
    ],
)
def test_the_bytes_of_a_table(
    each_kernel: str, frequencies: dict[int, int], expected: bytes
) -> None:
    row = np.zeros((1, ALPHABET), np.uint16)
    row[0, list(frequencies)] = list(frequencies.values())
    assert serialise(row) == expected
    assert serialise(row.repeat(3, axis=0)) == 3 * expected
    assert np.array_equal(parse(expected, 0, 1)[0], row)


@pytest.mark.parametrize("counts", HISTOGRAMS.values(), ids=HISTOGRAMS.keys())
def test_a_table_cut_anywhere_is_refused(each_kernel: str, counts: NDArray[np.int64]) -> None:
    data = serialise(normalise(counts))
    for number in (1, 2):
        for length in range(number * len(data)):
            with pytest.raises(IntegrityError, match="cut short"):
                parse((number * data)[:length], 0, number)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0",
        b"\0\0\xff\x1f",
        b"\0\0\x80\x40",
        b"\0\2" + b"\x80\x10" * 3,
        b"\0\xff" + b"\x80\xff" * 256,
        b"\5\4\x80\x20",
    ],
    ids=["0", "4095", "8192", "6144", "8 million", "no symbols"],
)
def test_a_table_with_another_sum_is_refused(each_kernel: str, data: bytes) -> None:
    with pytest.raises(IntegrityError, match="sum to 4096"):
        parse(data, 0, 1)
    with pytest.raises(IntegrityError, match="sum to 4096"):
        parse(b"\3\3\x80\x20" + data, 0, 2)


def parsed(data: bytes, number: int) -> tuple[list[list[int]], int] | str:
    """Return tables and their end, or why they are refused."""
    try:
        tables, at = parse(data, 0, number)
    except IntegrityError as error:
        return error.message
    assert (tables.sum(axis=1, dtype=np.int64) == SLOTS).all()
    return tables.tolist(), at


def test_damaged_tables_mean_the_same_to_every_kernel(
    kernels: Sequence[str], use_kernel: Callable[[str], None]
) -> None:
    rng = np.random.default_rng(0)
    valid = serialise(normalise(random_histograms(3)))
    samples = [rng.bytes(int(rng.integers(0, 520))) for _ in range(200)]
    for _ in range(200):
        damaged = bytearray(valid)
        damaged[int(rng.integers(0, len(valid)))] = int(rng.integers(0, 256))
        samples.append(bytes(damaged))
    # Longer varints than needed and zeros at both ends: readers may accept them.
    samples += [b"\0\3\x80\0\0\x80\x20\0", b"\0\xff" + bytes(255) + b"\x80\x20"]
    outcomes = []
    for kernel in kernels:
        use_kernel(kernel)
        outcomes.append([parsed(data, number) for data in samples for number in (1, 3)])
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert {type(found) for found in outcomes[0]} == {str, tuple}


def regions(*kinds: int) -> NDArray[np.int64]:
    """Return histograms of regions that draw from a few very different distributions."""
    rows = np.zeros((len(kinds), ALPHABET), np.int64)
    for row, kind in zip(rows, kinds, strict=True):
        row[16 * kind : 16 * kind + 16] = np.arange(1, 17) * 1000
    return rows


def test_clusters_find_the_kinds_of_regions() -> None:
    kinds = (0, 3, 1, 0, 2, 2, 3, 1, 0, 1)
    tables, choice, bits = cluster(regions(*kinds), 8)
    assert len(tables) == 4
    assert len({(kind, int(table)) for kind, table in zip(kinds, choice, strict=True)}) == 4
    assert bits < cluster(regions(*kinds), 1)[2]


@pytest.mark.parametrize("limit", [1, 2, 3, 64])
def test_clusters_stay_within_the_limit_and_cover_every_region(limit: int) -> None:
    counts = random_histograms(40)
    tables, choice, bits = cluster(counts, limit)
    assert len(tables) <= limit
    assert int(choice.max()) < len(tables)
    assert ((tables[choice] > 0) | (counts == 0)).all()
    exact = int(costs(counts, tables[choice]).sum() + 8 * serialised_sizes(tables).sum())
    assert bits == exact


def test_more_tables_never_cost_more() -> None:
    counts = random_histograms(40)
    totals = [cluster(counts, limit)[2] for limit in (1, 2, 4, 8, 16, 32)]
    assert totals == sorted(totals, reverse=True)


def test_equal_regions_share_one_table() -> None:
    tables, choice, _ = cluster(regions(*[1] * 9), 8)
    assert len(tables) == 1
    assert not choice.any()


def fitted(counts: NDArray[np.int64]) -> list[object]:
    """Return tables and clusters as plain data, to be compared."""
    found: list[object] = [normalise(counts).tolist()]
    for limit in (1, 2, 5, 16, 64):
        tables, choice, bits = cluster(counts, limit)
        found += [tables.tolist(), choice.tolist(), bits]
    return found


@pytest.mark.parametrize(
    "counts",
    [
        np.concatenate([*HISTOGRAMS.values(), histogram()]),
        random_histograms(40),
        random_histograms(128) // 1000,
        regions(0, 3, 1, 0, 2, 2, 3, 1, 0, 1),
        regions(*[1] * 9),
        np.zeros((5, ALPHABET), np.int64),
    ],
    ids=["extremes", "random", "sparse", "kinds", "equal", "empty"],
)
def test_every_kernel_fits_the_same_tables(
    each_kernel: str, use_kernel: Callable[[str], None], counts: NDArray[np.int64]
) -> None:
    found = fitted(counts)
    use_kernel("reference")
    assert found == fitted(counts)
