"""Numbers as people read them."""

import pytest

from trainperf.core.formatting.units import (
    Scale,
    confidence_interval,
    count,
    duration,
    fine_share,
    plural,
    ranks_named,
    rate,
    share,
    size,
    times,
    words,
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (3.2e-7, "0.32 µs"),
        (35.2e-6, "35.2 µs"),
        (0.9996e-3, "1.00 ms"),
        (0.0551, "55.1 ms"),
        (0.99951, "1.00 s"),
        (12.34, "12.3 s"),
        (210.0, "210 s"),
        (700.0, "11.7 min"),
        (27_000.0, "7.50 h"),
        (9_000_000.0, "2,500 h"),
    ],
)
def test_a_duration_has_three_digits_in_the_unit_that_fits(seconds: float, said: str) -> None:
    """From nanoseconds to weeks."""
    assert duration(seconds) == said


def test_parts_are_shown_in_the_unit_of_the_whole() -> None:
    """So that a column can be added up by eye."""
    scale = Scale.fine(0.107)

    assert [scale.say(part) for part in (0.1, 0.0065, 0.0004)] == ["100.0 ms", "6.5 ms", "0.4 ms"]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.00102, 0.00097, 0.00107, " (95 % CI 0.97–1.07)"),
        (0.98e-3, 0.93e-3, 1.03e-3, " (95 % CI 930–1,030)"),
        (1.05, 0.95, 1.15, " (95 % CI 0.95–1.15)"),
        (0.97, 0.92, 1.02, " (95 % CI 920–1,020)"),
        (0.0551, 0.0548, 0.0554, " (95 % CI 54.8–55.4)"),
        # Ends that look the same, and none.
        (0.0551, 0.05508, 0.05512, ""),
        (0.0551, None, None, ""),
    ],
)
def test_both_ends_of_an_interval_are_in_the_unit_of_the_value(
    value: float, low: float | None, high: float | None, text: str
) -> None:
    """No unit is printed behind them, so it is that of the number before."""
    assert confidence_interval(value, low, high) == text


@pytest.mark.parametrize(
    ("fraction", "said"),
    [(0.0, "0 %"), (0.0004, "< 0.1 %"), (0.031, "3.1 %"), (0.3666, "37 %"), (1.0, "100 %")],
)
def test_a_share_has_the_digits_that_matter(fraction: float, said: str) -> None:
    """Something small is not nothing."""
    assert share(fraction) == said


def test_columns_of_shares_have_one_decimal() -> None:
    """Aligned."""
    assert fine_share(0.36666) == "36.7 %"


def test_amounts_sizes_rates_and_factors() -> None:
    """Thousands, binary bytes, decimal rates, factors."""
    assert (count(1452.0), count(12.345), count(9.0)) == ("1,452", "12.3", "9")
    assert (size(512), size(1.5 * 2**30), size(3 * 2**40)) == ("512 B", "1.50 GiB", "3.00 TiB")
    assert (rate(12.3e9), rate(999.0)) == ("12.3 GB/s", "999 B/s")
    assert (times(1.584), times(12.4)) == ("1.58×", "12×")


def test_labels_and_numbers_in_words() -> None:
    """One rank, two ranks; data wait, warm-up."""
    assert (plural(1, "rank"), plural(2000, "step")) == ("1 rank", "2,000 steps")
    assert (words("data_wait"), words("warmup")) == ("data wait", "warm-up")


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([3], "rank 3"),
        ([8, 9, 10], "ranks 8–10"),
        ([12, 3, 9, 10], "ranks 3, 9–10 and 12"),
        ([0, 2, 4, 6, 8, 10, 11], "ranks 0, 2, 4, 6 and 3 more"),
    ],
)
def test_ranks_in_a_sentence(ranks: list[int], named: str) -> None:
    """Neighbours together, and of many how many more."""
    assert ranks_named(ranks) == named
