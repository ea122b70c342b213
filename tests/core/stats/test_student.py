"""Quantiles of Student's t against scipy's, and one that is known by heart."""

import math

import pytest
from scipy.special import stdtrit

from trainperf.core.stats.student import student_quantile


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.995, 1 - 1e-6])
@pytest.mark.parametrize("freedom", [1.0, 1.3, 2.0, 2.7, 4.0, 9.0, 30.0, 500.0, 1e6])
def test_a_quantile_is_scipys(freedom: float, probability: float) -> None:
    """From one degree of freedom, whole or not, to as many as make it normal."""
    expected = float(stdtrit(freedom, probability))

    assert student_quantile(freedom, probability) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_with_one_degree_of_freedom_it_is_cauchys() -> None:
    """The tangent of a share of a half turn."""
    assert student_quantile(1.0, 0.975) == pytest.approx(math.tan(math.pi * 0.475))
