"""Intervals of durations whose ends alone would be shown in another unit."""

import pytest

from trainperf.core.formatting.units import confidence_interval


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.00102, 0.00097, 0.00107, " (95 % CI 0.97–1.07)"),
        (0.98e-3, 0.93e-3, 1.03e-3, " (95 % CI 930–1,030)"),
        (1.05, 0.95, 1.15, " (95 % CI 0.95–1.15)"),
        (0.97, 0.92, 1.02, " (95 % CI 920–1,020)"),
    ],
    ids=["1.02 ms", "980 µs", "1.05 s", "970 ms"],
)
def test_both_ends_are_in_the_unit_of_the_value(
    value: float, low: float, high: float, text: str
) -> None:
    """No unit is printed behind them, so it is that of the number before."""
    assert confidence_interval(value, low, high) == text
