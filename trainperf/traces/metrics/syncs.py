"""Waits of the host for the device, and the lines of Python they come from."""

import re
from collections import defaultdict

import numpy as np

from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.columns import StepColumns, per_step, seconds
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.links import Nest, nest
from trainperf.traces.metrics.steps import Rows, StepSpans, present
from trainperf.traces.results import SyncSite


TOP = 20
FRAMES = 8
"""Python frames that are kept of a stack."""

_ITEM = "aten::item"
_SCALAR = "aten::_local_scalar_dense"
_BUILT_IN = re.compile(r"<built-in|<string>|nn\.Module: ")
_LIBRARY = re.compile(
    r"(.*/)?(torch|lightning|pytorch_lightning|lightning_fabric|accelerate|transformers)/"
    r"|(.*/)?(threading|contextlib|functools|runpy|_contextlib)\.py\("
)


def sync_columns(
    table: EventTable, steps: StepSpans, host: HostWork, forest: Nest, *, has_device: bool
) -> StepColumns:
    """How often the host waited in each step, its time in these calls, and `.item()` calls.

    Calls inside one operator are one wait: a copy to the host, and the synchronisation after it.
    """
    count = len(steps)
    items = steps.holding(table.start_ns[_items(table, forest)])
    columns = {"item_calls": per_step(items, count)}
    if not has_device:
        return {**columns, "sync_calls": [None] * count, "sync_s": [None] * count}
    waits = host.syncs[_first_of_each(_waits(table, host.syncs, forest))]
    step = steps.holding(table.start_ns[waits])
    return {
        **columns,
        "sync_calls": per_step(step, count),
        "sync_s": seconds(host.syncing.within(steps.start, steps.end)),
    }


def sync_sites(table: EventTable, host: HostWork, forest: Nest) -> tuple[SyncSite, ...]:
    """Where recorded steps waited, the longest first; only calls in which the host did wait."""
    rows = host.syncs
    calls = _calls(table, rows, forest)
    stacks = _stacks(table, rows) if table.stack is None else _call_stacks(table, rows, forest)
    waits = _waits(table, rows, forest).tolist()
    lengths: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
    counted: dict[tuple[str, tuple[str, ...]], set[int]] = defaultdict(set)
    for place, length in enumerate(table.duration_ns[rows].tolist()):
        site = calls[place], stacks[place]
        lengths[site] += length
        counted[site].add(waits[place])
    sites = [
        SyncSite(call=site[0], count=len(counted[site]), total_s=length / 1e9, stack=site[1])
        for site, length in lengths.items()
    ]
    return tuple(sorted(sites, key=lambda site: (-site.total_s, site.call, site.stack))[:TOP])


def _waits(table: EventTable, rows: Rows, forest: Nest) -> Rows:
    """A number for the wait that each call belongs to: calls of one operator are one wait."""
    place = forest.innermost(table.thread[rows], table.start_ns[rows])
    return np.where(place == NONE, -1 - np.arange(len(rows)), place)


def _first_of_each(waits: Rows) -> Rows:
    return np.unique(waits, return_index=True)[1]


def _items(table: EventTable, forest: Nest) -> Rows:
    """Each `.item()` once: the operator, and the scalar read that no such operator is around."""
    code = {name: place for place, name in enumerate(table.names) if name in (_ITEM, _SCALAR)}
    names = table.name[forest.rows]
    item = names == code.get(_ITEM, NONE)
    scalar = names == code.get(_SCALAR, NONE)
    inside = forest.parent != NONE
    inside[inside] = item[forest.parent[inside]]
    return np.asarray(forest.rows[item | (scalar & ~inside)])


def _calls(table: EventTable, rows: Rows, forest: Nest) -> list[str]:
    """`aten::item` where one is around; else the outermost `aten` operator; else the call."""
    levels = forest.ancestors(forest.innermost(table.thread[rows], table.start_ns[rows]))
    names = [table.label(int(row)) for row in rows]
    for level in levels:
        for place in np.flatnonzero(level != NONE):
            name = table.label(int(forest.rows[level[place]]))
            if name.startswith("aten::") and names[place] != _ITEM:
                names[place] = name
    return names


def _stacks(table: EventTable, rows: Rows) -> list[tuple[str, ...]]:
    """Python frames around each row, innermost first; libraries' only where there are no others."""
    python = table.rows(Kind.PYTHON)
    python = python[np.isin(table.thread[python], present(table.thread[rows]))]
    frames: list[list[str]] = [[] for _ in rows]
    if len(python) and len(rows):
        calls = nest(table, python)
        place = calls.innermost(table.thread[rows], table.start_ns[rows])
        for level in calls.ancestors(place):
            for at in np.flatnonzero(level != NONE):
                frames[at].append(table.label(int(calls.rows[level[at]])))
    return [_kept(stack) for stack in frames]


def _call_stacks(table: EventTable, rows: Rows, forest: Nest) -> list[tuple[str, ...]]:
    """The stacks that traces of 2021 give with each operator, of the innermost that has one."""
    frames: list[list[str]] = [[] for _ in rows]
    levels = forest.ancestors(forest.innermost(table.thread[rows], table.start_ns[rows]))
    for level in levels:
        for at in np.flatnonzero(level != NONE):
            code = NONE if table.stack is None else int(table.stack[forest.rows[level[at]]])
            if code != NONE and not frames[at]:
                frames[at] = [frame.strip() for frame in table.texts[code].split(";")]
    return [_kept(stack) for stack in frames]


def _kept(stack: list[str]) -> tuple[str, ...]:
    frames = [frame for frame in stack if not _BUILT_IN.match(frame)]
    own = [frame for frame in frames if not _LIBRARY.match(frame)]
    return tuple((own or frames)[:FRAMES])
