"""Links between events: the call that launched a device event, the operator around a call."""

from dataclasses import dataclass

import numpy as np

from trainperf.traces.event_table import NONE, Codes, Column, EventTable, Kind
from trainperf.traces.metrics.spans import Rows, present


def launches_of(table: EventTable, rows: Rows) -> Rows:
    """The row of the runtime call that launched each device row; `NONE` where none was recorded.

    A correlation of 0 is what profilers write when they have none.
    """
    calls = table.rows(Kind.RUNTIME)
    calls = calls[table.correlation[calls] > 0]
    # The first of several calls with one number is the one that the others are parts of.
    numbers, first = np.unique(table.correlation[calls], return_index=True)
    wanted = table.correlation[rows]
    if not len(numbers):
        return np.full(len(rows), NONE, np.intp)
    place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    matches = numbers[place] == wanted
    return np.where(matches, calls[first[place]], NONE).astype(np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """Some host events as a forest: on each thread, what began inside another is its child."""

    rows: Rows
    """By thread, then by start; a parent stands before its children."""
    parent: Rows
    """Position in `rows` of each one's parent; `NONE` at the top."""
    thread: Codes
    start: Column
    end: Column
    """Cut at the parent's end: clocks are rounded, so children stick out by a microsecond."""
    depth: Codes

    def innermost(self, thread: Codes, times: Column) -> Rows:
        """Position of the innermost event on a thread at each of *times*; `NONE` without one."""
        out = np.full(len(times), NONE, np.intp)
        for code in present(thread):
            mine = np.flatnonzero(thread == code)
            low, high = np.searchsorted(self.thread, [code, code + 1])
            place = low + np.searchsorted(self.start[low:high], times[mine], side="right") - 1
            place[place < low] = NONE
            out[mine] = self._climbed(place, times[mine])
        return out

    def around(self, table: EventTable, rows: Rows) -> Rows:
        """Position of the innermost event around the start of each row; `NONE` for none."""
        out = np.full(len(rows), NONE, np.intp)
        real = rows != NONE
        out[real] = self.innermost(table.thread[rows[real]], table.start_ns[rows[real]])
        return out

    def ancestors(self, place: Rows) -> "list[Rows]":
        """*place*, its parents, theirs, and so on, until all are at the top."""
        levels = []
        while (place != NONE).any():
            levels.append(place)
            place = np.where(place == NONE, NONE, self.parent[place])
        return levels

    def _climbed(self, place: Rows, times: Column) -> Rows:
        while True:
            over = place != NONE
            over[over] = self.end[place[over]] <= times[over]
            if not over.any():
                return place
            place = place.copy()
            place[over] = self.parent[place[over]]


def nest(table: EventTable, rows: Rows) -> Nest:
    """The forest of *rows*; ties are broken by what was recorded, not by the file's order."""
    rows = _ordered(table, rows)
    thread, start, end = table.thread[rows], table.start_ns[rows], table.end_ns[rows]
    end = np.maximum(end, start + 1)
    for _ in range(_CUTS):
        depth = _depths(thread, start, end)
        parent = _parents(depth)
        inside = parent != NONE
        inside[inside] = end[parent[inside]] > start[inside]
        cut = np.where(inside, np.minimum(end, end[parent]), end)
        cut = np.maximum(cut, start + 1)
        if (cut == end).all():
            break
        end = cut
    return Nest(rows=rows, parent=parent, thread=thread, start=start, end=end, depth=depth)


_CUTS = 8
"""Levels by which rounding can push a chain of last children out of their parents."""


def _ordered(table: EventTable, rows: Rows) -> Rows:
    """By thread, start and length; what ties in all three, by what was recorded."""
    rows = rows[np.argsort(table.thread[rows], kind="stable")]
    columns = table.thread[rows], table.start_ns[rows], -table.duration_ns[rows]
    same = np.ones(max(0, len(rows) - 1), bool)
    for column in columns:
        same &= column[1:] == column[:-1]
    tied = np.zeros(len(rows), bool)
    tied[1:] |= same
    tied[:-1] |= same
    mine = rows[tied]
    texts = np.array(table.names, dtype=object)[table.name[mine]]
    named = np.unique(texts, return_inverse=True)[1] if len(mine) else mine
    keys = (named, table.external[mine], *(column[tied] for column in reversed(columns)))
    rows[tied] = mine[np.lexsort(keys)]
    return rows


def _depths(thread: Codes, start: Column, end: Column) -> Codes:
    """How many events of the same thread are open when each begins."""
    depth = np.empty(len(start), np.int32)
    bounds = np.flatnonzero(np.diff(thread)) + 1
    for mine in np.split(np.arange(len(start)), bounds):
        ended = np.searchsorted(np.sort(end[mine]), start[mine], side="right")
        depth[mine] = np.arange(len(mine)) - ended
    return depth


def _parents(depth: Codes) -> Rows:
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
