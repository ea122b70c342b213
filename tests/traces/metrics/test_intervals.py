"""Interval algebra against counting single nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainperf.traces.metrics.spans import (
    Spans,
    clipped,
    either,
    overlaps,
    union,
    without,
)


PIECES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def spans_of(pieces: list[tuple[int, int]]) -> Spans:
    """The union of some (start, length)."""
    start = np.array([start for start, _ in pieces], np.int64)
    return union(start, start + np.array([length for _, length in pieces], np.int64))


def moments(pieces: list[tuple[int, int]]) -> set[int]:
    """Every nanosecond that is covered."""
    return {at for start, length in pieces for at in range(start, start + length)}


def covered(spans: Spans) -> set[int]:
    """The same of spans."""
    return {
        at
        for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
        for at in range(start, end)
    }


@given(PIECES)
def test_a_union_covers_what_any_covers_once(pieces: list[tuple[int, int]]) -> None:
    """Disjoint, in order, and of the same length."""
    spans = spans_of(pieces)

    assert covered(spans) == moments(pieces)
    assert spans.total == len(moments(pieces))
    assert (spans.start[1:] > spans.end[:-1]).all()


@given(PIECES, PIECES)
def test_two_are_combined_as_sets_are(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Union, intersection and difference."""
    first, second = spans_of(one), spans_of(other)

    assert covered(either(first, second)) == moments(one) | moments(other)
    assert covered(without(first, second)) == moments(one) - moments(other)


@given(PIECES, st.integers(0, 60), st.integers(0, 20))
def test_windows_and_moments(pieces: list[tuple[int, int]], start: int, length: int) -> None:
    """How much of a window is covered, and whether a moment is."""
    spans, window = spans_of(pieces), set(range(start, start + length))
    inside = moments(pieces) & window

    assert covered(clipped(spans, start, start + length)) == inside
    assert spans.within(np.array([start]), np.array([start + length])).tolist() == [len(inside)]
    assert spans.holds(np.array([start])).tolist() == [start in moments(pieces)]


def test_nothing_covers_nothing() -> None:
    """No interval, and intervals without length."""
    assert spans_of([]).total == 0
    assert spans_of([]).bounds is None
    assert len(spans_of([(3, 0)])) == 0


@given(st.lists(PIECES, max_size=4), PIECES)
def test_the_overlaps_of_several_with_one(
    several: list[list[tuple[int, int]]], other: list[tuple[int, int]]
) -> None:
    """Each with the same other, in order; empty ones have none."""
    found = overlaps([spans_of(pieces) for pieces in several], spans_of(other))

    assert found == [len(moments(pieces) & moments(other)) for pieces in several]
