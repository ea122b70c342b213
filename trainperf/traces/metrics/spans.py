"""Interval algebra on columns, steps as intervals on the host's clock, and links between events.

Links: the call that launched a device event, the operator around a call.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Integers, Mask, Places
from trainperf.traces.event_table import NONE, Codes, EventTable, Kind
from trainperf.traces.results import PROFILER_STEP


_NO_TIMES: Integers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Disjoint intervals in order, each from `start` up to but without `end`, in nanoseconds."""

    start: Integers
    end: Integers

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """Time that is covered."""
        return int((self.end - self.start).sum())

    @property
    def bounds(self) -> tuple[int, int] | None:
        """From the first start to the last end; `None` without intervals."""
        return (int(self.start[0]), int(self.end[-1])) if len(self) else None

    def until(self, times: Integers) -> Integers:
        """Covered time before each of *times*, which may be in any order."""
        lengths = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, times, side="right")
        # Nothing that has begun has an end before the first of all times.
        ends = np.concatenate(([np.iinfo(np.int64).min], self.end))
        return np.asarray(lengths[place] - np.maximum(ends[place], times) + times, np.int64)

    def within(self, start: Integers, end: Integers) -> Integers:
        """Covered time inside each of some windows; windows may overlap."""
        return self.until(end) - self.until(start)

    def holds(self, times: Integers) -> Mask:
        """Whether each of *times* is covered."""
        return np.asarray(self.holding(times) != NONE)

    def holding(self, times: Integers) -> Codes:
        """Position of the interval that holds each of *times*; `NONE` outside all."""
        place = np.searchsorted(self.start, times, side="right") - 1
        ends = np.append(self.end, np.iinfo(np.int64).min)  # that of `NONE`
        return np.where(times < ends[place], place, NONE).astype(np.int32)


def union(start: Integers, end: Integers) -> Spans:
    """What any of some intervals covers; they may come in any order and overlap."""
    keep = end > start
    start, end = start[keep], end[keep]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.ones(len(start), bool)
    opens[1:] = start[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return Spans(start=start[first], end=reach[last[: len(first)]])


def either(first: Spans, other: Spans) -> Spans:
    """What one of two covers."""
    return union(np.concatenate((first.start, other.start)), np.concatenate((first.end, other.end)))


def without(first: Spans, other: Spans) -> Spans:
    """What *first* covers and *other* does not: of the time cut at every edge of the two."""
    edges = np.sort(np.concatenate((first.start, first.end, other.start, other.end)))
    begin, end = edges[:-1], edges[1:]
    kept = first.holds(begin) & ~other.holds(begin)
    return union(begin[kept], end[kept])


def overlaps(several: Sequence[Spans], other: Spans) -> list[int]:
    """How much of each of *several* another covers, in one pass over them all."""
    start = np.concatenate([spans.start for spans in several] or [_NO_TIMES])
    end = np.concatenate([spans.end for spans in several] or [_NO_TIMES])
    sums = np.concatenate(([0], np.cumsum(other.within(start, end))))
    bounds = np.cumsum([0, *map(len, several)])
    return [int(part) for part in np.diff(sums[bounds])]


def clipped(spans: Spans, start: int, end: int) -> Spans:
    """What is left inside one window."""
    return union(np.maximum(spans.start, start), np.minimum(spans.end, end))


OPTIMIZER_STEP = "Optimizer.step"
WINDOW = "none"

_MARK = re.compile(r"ProfilerStep\s*#\s*(\d{1,18})\b")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_HOST = (Kind.CPU_OP, Kind.ANNOTATION)
"""Marks of 2021 are operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpans(Spans):
    """The steps on the host's clock; neighbours that touch stay apart."""

    number: Integers
    source: str
    """What they were cut by."""
    thread: int
    """Index of the thread that runs them; `NONE` where no mark says so."""


def present(codes: Codes | Integers) -> Places:
    """The codes that occur, in order; an order of magnitude faster than `np.unique` on long ones.

    None of them may be `NONE`.
    """
    return np.flatnonzero(np.bincount(codes))


def distinct(values: Codes | Integers) -> Integers:
    """What occurs, in order; without the 14 ms in which a bare `np.unique` loads `numpy.ma`."""
    return np.asarray(np.unique(values, return_index=True)[0], np.int64)


def find_steps(table: EventTable) -> StepSpans:
    """The steps by their marks; else from one `Optimizer.step` to the next; else all as one."""
    return _by_mark(table) or _by_optimizer(table) or _one_window(table)


def named(table: EventTable, pattern: "re.Pattern[str]", *kinds: Kind) -> Places:
    """Rows of these kinds whose name matches from its beginning; each name is looked at once."""
    wanted = np.array([pattern.match(name) is not None for name in table.names], bool)
    if not wanted.any():
        return np.empty(0, np.intp)
    rows = np.flatnonzero(wanted[table.name])
    return np.asarray(rows[np.isin(table.kind[rows], kinds)])


def by_name(table: EventTable, rows: Places, holds: Callable[[str], object]) -> Mask:
    """Which of *rows* have a name for which *holds*; each name is looked at once."""
    return by_text(table.names, table.name[rows], lambda name: bool(holds(name))).astype(bool)


def by_text(
    texts: Sequence[str], codes: Codes, value_of: Callable[[str], int], of_none: int = 0
) -> Places:
    """What *value_of* says of the text of each code, and *of_none* of `NONE`; asked once a text."""
    values = np.full(len(texts) + 1, of_none, np.intp)
    for code in present(codes[codes != NONE]):
        values[code] = value_of(texts[code])
    return values[codes]


def _marks(table: EventTable, pattern: "re.Pattern[str]") -> tuple[Places, int]:
    """Rows of the marks, and their thread: others in the same file may mark steps of their own."""
    rows = named(table, pattern, *_HOST)
    thread = int(np.bincount(table.thread[rows]).argmax()) if len(rows) else NONE
    return rows[table.thread[rows] == thread], thread


def _by_mark(table: EventTable) -> StepSpans | None:
    rows, thread = _marks(table, _MARK)
    if not len(rows):
        return None
    marks = {int(code): _MARK.match(table.names[code]) for code in present(table.name[rows])}
    numbers = {code: int(mark.group(1)) for code, mark in marks.items() if mark}
    number = np.array([numbers[int(code)] for code in table.name[rows]], np.int64)
    start, end = table.start_ns[rows], table.end_ns[rows]
    end[:-1] = np.minimum(end[:-1], start[1:])
    whole = end > start
    return StepSpans(
        number=number[whole],
        start=start[whole],
        end=end[whole],
        source=PROFILER_STEP,
        thread=thread,
    )


def _by_optimizer(table: EventTable) -> StepSpans | None:
    rows, thread = _marks(table, _OPTIMIZER)
    if not len(rows):
        return None
    # An optimizer inside another one ends before it.
    ends = distinct(np.maximum.accumulate(table.end_ns[rows]))
    start = np.concatenate(([_host_window(table)[0]], ends[:-1]))
    number = np.arange(len(ends))
    return StepSpans(number=number, start=start, end=ends, source=OPTIMIZER_STEP, thread=thread)


def _one_window(table: EventTable) -> StepSpans:
    start, end = _host_window(table)
    alone = np.zeros(int(end > start), np.int64)
    return StepSpans(number=alone, start=alone + start, end=alone + end, source=WINDOW, thread=NONE)


def _host_window(table: EventTable) -> tuple[int, int]:
    """From the first to the last thing that the host did; of everything without a host."""
    rows = table.rows(Kind.CPU_OP, Kind.ANNOTATION, Kind.RUNTIME)
    if not len(rows):
        rows = np.arange(len(table))
    if not len(rows):
        return 0, 0
    return int(table.start_ns[rows].min()), int(table.end_ns[rows].max())


def launches_of(table: EventTable, rows: Places) -> Places:
    """The row of the runtime call that launched each device row; `NONE` where none was recorded.

    A correlation of 0 is what profilers write when they have none.
    """
    calls = table.rows(Kind.RUNTIME)
    calls = calls[table.correlation[calls] > 0]
    # The first of several calls with one number is the one that the others are parts of.
    numbers, first = np.unique(table.correlation[calls], return_index=True)
    wanted = table.correlation[rows]
    place = np.searchsorted(numbers, wanted)
    matches = np.append(numbers, NONE)[place] == wanted
    return np.where(matches, np.append(calls[first], NONE)[place], NONE).astype(np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """Some host events as a forest: on each thread, what began inside another is its child."""

    rows: Places
    """By thread, then by start; a parent stands before its children."""
    parent: Places
    """Position in `rows` of each one's parent; `NONE` at the top."""
    thread: Codes
    start: Integers
    end: Integers
    """Cut at the parent's end: clocks are rounded, so children stick out by a microsecond."""
    depth: Codes

    def innermost(self, thread: Codes, times: Integers) -> Places:
        """Position of the innermost event on a thread at each of *times*; `NONE` without one."""
        out = np.full(len(times), NONE, np.intp)
        for code in present(thread) if len(self.rows) else ():
            mine = np.flatnonzero(thread == code)
            low, high = np.searchsorted(self.thread, [code, code + 1])
            place = low + np.searchsorted(self.start[low:high], times[mine], side="right") - 1
            place[place < low] = NONE
            out[mine] = self._climbed(place, times[mine])
        return out

    def around(self, table: EventTable, rows: Places) -> Places:
        """Position of the innermost event around the start of each row; `NONE` for none."""
        innermost = self.innermost(table.thread[rows], table.start_ns[rows])
        return np.where(rows == NONE, NONE, innermost)

    def ancestors(self, place: Places) -> list[Places]:
        """*place*, its parents, theirs, and so on, until all are at the top."""
        levels = []
        while (place != NONE).any():
            levels.append(place)
            place = np.where(place == NONE, NONE, self.parent[place])
        return levels

    def _climbed(self, place: Places, times: Integers) -> Places:
        while (over := (place != NONE) & (self.end[place] <= times)).any():
            place = np.where(over, self.parent[place], place)
        return place


def nest(table: EventTable, rows: Places) -> Nest:
    """The forest of *rows*; ties are broken by what was recorded, not by the file's order."""
    rows = _ordered(table, rows)
    thread, start, end = table.thread[rows], table.start_ns[rows], table.end_ns[rows]
    end = np.maximum(end, start + 1)
    for _ in range(_CUTS):
        depth = _depths(thread, start, end)
        parent = _parents(depth)
        inside = (parent != NONE) & (end[parent] > start)
        cut = np.where(inside, np.minimum(end, end[parent]), end)
        if (cut == end).all():
            break
        end = cut
    return Nest(rows=rows, parent=parent, thread=thread, start=start, end=end, depth=depth)


_CUTS = 8
"""Levels by which rounding can push a chain of last children out of their parents."""


def _ordered(table: EventTable, rows: Places) -> Places:
    """By thread, start and length; what ties in all three, by what was recorded."""
    rows = rows[np.argsort(table.thread[rows], kind="stable")]
    columns = table.thread[rows], table.start_ns[rows], -table.duration_ns[rows]
    same = np.ones(len(rows) + 1, bool)
    same[[0, -1]] = False
    for column in columns:
        same[1:-1] &= column[1:] == column[:-1]
    tied = same[1:] | same[:-1]
    mine = rows[tied]
    texts = np.array(table.names, dtype=object)[table.name[mine]]
    named = np.unique(texts, return_inverse=True)[1] if len(mine) else mine
    keys = (named, table.external[mine], *(column[tied] for column in reversed(columns)))
    rows[tied] = mine[np.lexsort(keys)]
    return rows


def _depths(thread: Codes, start: Integers, end: Integers) -> Codes:
    """How many events of the same thread are open when each begins."""
    depth = np.empty(len(start), np.int32)
    bounds = np.flatnonzero(np.diff(thread)) + 1
    for mine in np.split(np.arange(len(start)), bounds):
        ended = np.searchsorted(np.sort(end[mine]), start[mine], side="right")
        depth[mine] = np.arange(len(mine)) - ended
    return depth


def _parents(depth: Codes) -> Places:
    """The last event before each one that is a level above it.

    Threads need no care: a first event of a thread is at the top, and every other has one of its
    own thread before it on each level above.
    """
    parent = np.full(len(depth), NONE, np.intp)
    above = np.flatnonzero(depth == 0)
    level = 1
    while len(mine := np.flatnonzero(depth == level)):
        parent[mine] = above[np.searchsorted(above, mine) - 1]
        above, level = mine, level + 1
    return parent
