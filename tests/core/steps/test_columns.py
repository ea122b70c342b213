"""Packed columns give back what was packed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainperf.core.steps.columns import pack, unpack


WHOLE = st.integers(-(2**52), 2**52).map(float)
CELLS = st.one_of(WHOLE, st.just(float("nan")), st.floats(allow_infinity=True, width=64))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=7, max_size=7), min_size=1, max_size=3))
def test_what_is_unpacked_is_what_was_packed(columns: list[list[float]]) -> None:
    """Whole numbers of any size, missing cells, fractions, infinities, in any order."""
    matrix = np.array(columns).T
    back = unpack(pack(matrix), *matrix.shape)
    assert np.array_equal(back, matrix, equal_nan=True)


def test_times_of_steps_take_three_bytes() -> None:
    """5 ms with a jitter of 1 %: a range of some 17 bits."""
    draws = np.random.default_rng(0)
    matrix = np.rint(5e6 * (1 + 0.01 * draws.standard_normal((1024, 1))))
    assert len(pack(matrix)) < 3 * 1024


def test_damaged_columns_are_an_error() -> None:
    """Never numbers that nobody measured."""
    packed = pack(np.arange(20.0).reshape(10, 2))
    with pytest.raises(ValueError, match="damaged columns"):
        unpack(packed[: len(packed) // 2], 10, 2)
