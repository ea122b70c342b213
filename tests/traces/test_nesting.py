"""Who is inside whom: the forest of host events."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.traces import event, table_of

from trainperf.traces.event_table import NONE
from trainperf.traces.metrics.operators import self_times
from trainperf.traces.metrics.spans import nest


def test_parents_are_the_innermost_that_are_open() -> None:
    """On each thread by itself."""
    other = ("1", "2")
    table = table_of(
        [
            event("outer", 0, 100),
            event("first", 10, 20),
            event("inner", 15, 5),
            event("second", 40, 10),
            event("elsewhere", 12, 50, thread=other),
            event("after", 100, 5),
        ]
    )
    forest = nest(table, np.arange(len(table)))
    names = [table.label(int(row)) for row in forest.rows]
    parents = {
        name: None if parent == NONE else names[parent]
        for name, parent in zip(names, forest.parent, strict=True)
    }

    assert parents == {
        "outer": None,
        "first": "outer",
        "inner": "first",
        "second": "outer",
        "elsewhere": None,
        "after": None,
    }
    self_ns = dict(zip(names, self_times(forest).tolist(), strict=True))
    assert self_ns == {
        "outer": 70,
        "first": 15,
        "inner": 5,
        "second": 10,
        "elsewhere": 50,
        "after": 5,
    }


def test_a_child_that_sticks_out_by_rounding_does_not_swallow_what_follows() -> None:
    """Clocks of whole microseconds: the child ends one after its parent, where the next begins."""
    table = table_of(
        [
            event("parent", 0, 10_000),
            event("child", 5_000, 6_000),
            event("next", 10_000, 5_000),
            event("of next", 11_000, 1_000),
        ]
    )
    forest = nest(table, np.arange(len(table)))

    assert forest.parent.tolist() == [NONE, 0, NONE, 2]
    assert self_times(forest).tolist() == [5_000, 5_000, 4_000, 1_000]


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Well nested intervals as (start, length, parent); starts and ends all differ."""
    size = draw(st.integers(1, 25))
    parents = [NONE, *(draw(st.integers(-1, place - 1)) for place in range(1, size))]
    children: dict[int, list[int]] = {place: [] for place in range(-1, size)}
    for place, parent in enumerate(parents):
        children[parent].append(place)
    clock, start, end = iter(range(10_000)), {}, {}

    def walk(place: int) -> None:
        start[place] = next(clock)
        for child in children[place]:
            walk(child)
        end[place] = next(clock)

    for root in children[NONE]:
        walk(root)
    return [(start[place], end[place] - start[place], parents[place]) for place in range(size)]


@given(forests())
def test_any_forest_is_found_again(planted: list[tuple[int, int, int]]) -> None:
    """Whatever its shape; and self times sum to the time that the roots cover."""
    table = table_of([event(str(place), one[0], one[1]) for place, one in enumerate(planted)])
    forest = nest(table, np.arange(len(table)))
    names = [int(table.label(int(row))) for row in forest.rows]

    found = {
        name: NONE if parent == NONE else names[parent]
        for name, parent in zip(names, forest.parent, strict=True)
    }

    assert found == {place: one[2] for place, one in enumerate(planted)}
    roots = sum(length for _, length, parent in planted if parent == NONE)
    assert int(self_times(forest).sum()) == roots


@given(forests(), st.integers(0, 60))
def test_the_innermost_at_any_moment(planted: list[tuple[int, int, int]], at: int) -> None:
    """The shortest one that holds it."""
    table = table_of([event(str(place), one[0], one[1]) for place, one in enumerate(planted)])
    forest = nest(table, np.arange(len(table)))
    holding = [one for one in planted if one[0] <= at < one[0] + one[1]]

    place = int(forest.innermost(np.array([0], np.int32), np.array([at]))[0])

    if not holding:
        assert place == NONE
    else:
        assert int(forest.start[place]) == min(holding, key=lambda one: one[1])[0]
