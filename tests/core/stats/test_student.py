"""Quantiles of Student's t against scipy's."""

import pytest
from scipy.special import stdtrit

from trainperf.core.stats.student import student_quantile


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.995, 1 - 1e-6])
@pytest.mark.parametrize("freedom", [1.0, 1.3, 2.0, 2.7, 4.0, 9.0, 30.0, 500.0, 1e6])
def test_a_quantile_is_scipys(freedom: float, probability: float) -> None:
    """From one degree of freedom, whole or not, to as many as make it normal."""
    expected = float(stdtrit(freedom, probability))

    assert student_quantile(freedom, probability) == pytest.approx(expected, rel=1e-5, abs=1e-5)
