import math

import pytest

from unweight import units


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (262_144_000, "262 MB"),
        (4.2e9, "4.20 GB"),
        (5e12, "5.00 TB"),
        (5e21, "5000 EB"),
    ],
)
def test_sizes_have_three_digits_and_a_decimal_prefix(nbytes: float, text: str) -> None:
    assert units.size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (9.999, "10.0 s"),
        (59.9, "59.9 s"),
        (59.97, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


def test_a_quotient_without_a_divisor_is_a_dash() -> None:
    assert units.percent(1, 0) == "-"
    assert units.rate(100, 0.0) == "-"
    assert units.rate(0, 1.0) == "-"
    assert units.bits(math.nan) == "-"


def test_percentages_and_rates() -> None:
    assert units.percent(661, 1000) == "66.1 %"
    assert units.percent(6575, 10000, decimals=2) == "65.75 %"
    assert units.rate(3e9, 2.0) == "1.50 GB/s"


def test_counts_have_a_plural() -> None:
    assert units.count(1, "tensor") == "1 tensor"
    assert units.count(1234, "tensor") == "1,234 tensors"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "tab\there", "\udcff", "\u202egnp.exe"])
def test_printable_leaves_nothing_that_acts_on_a_terminal(name: str) -> None:
    text = units.printable(name)
    assert text.isprintable()
    assert text != name


def test_printable_keeps_letters_of_any_script() -> None:
    assert units.printable("модель/重み.weight") == "модель/重み.weight"
