"""The work of the host in its steps: the loader, the parts of a step, operators, and its waits."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainperf.core.arrays import Places
from trainperf.core.groups import grouped
from trainperf.traces.event_table import NONE, EventTable, Kind
from trainperf.traces.metrics.device import DeviceUse, DeviceWork, StepColumns, per_step, seconds
from trainperf.traces.metrics.spans import (
    Nest,
    Spans,
    StepSpans,
    by_name,
    distinct,
    either,
    named,
    nest,
    present,
    union,
    without,
)
from trainperf.traces.results import SyncSite
from trainperf.traces.thresholds import THRESHOLDS


MARKS = re.compile(
    r"ProfilerStep\s*#|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)|trainperf::|## "
    r"|(nccl|gloo|mpi|ucc):|\[pl\]|\[(Strategy|LightningModule|Callback|_TrainingEpochLoop)\]"
    r"|DistributedDataParallel\.forward|Iteration:"
)
"""Names of ranges around operators, which old profilers recorded as operators."""

_LOADER = re.compile(
    r"enumerate\(DataLoader\)#.*__next__|trainperf::data_wait"
    r"|(\[pl\]\[profile\])?\[_TrainingEpochLoop\]\.train_dataloader_next"
)
_FORWARD = re.compile(
    r"trainperf::forward|## forward ##|(\[pl\]\[profile\])?\[Strategy\].*\.training_step"
    r"|DistributedDataParallel\.forward|FullyShardedDataParallel\.forward"
)
_BACKWARD = re.compile(
    r"trainperf::backward|## backward ##|(\[pl\]\[profile\])?\[Strategy\].*\.backward"
)
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_ENGINE = re.compile(r"autograd::engine::evaluate_function")
_NODE = re.compile(r"torch::autograd::|\w+Backward\d*$")
"""What the engine calls, which traces of 2021 name instead of the engine."""
SYNCHRONISING = re.compile(
    r"(cu|cuda|hip|xpu|mtia)(Stream|Device|Event|Ctx)Synchronize(_\w+)?$"
    r"|zeCommandQueueSynchronize|zeEventHostSynchronize|zeFenceHostSynchronize"
    r"|(cuda|hip)Memcpy(_\w+)?$|hipMemcpyWithStream$|(cu|hip)Memcpy[A-Z]to[A-Z](_v\d)?$"
    r"|(cuda|hip)Free(_\w+)?$"
)
"""Calls in which the host waits for the device: blocking copies and the release of memory too."""

LAUNCHING = re.compile(r"\w*Launch(?!Host)\w*", re.IGNORECASE)

_HOST = (Kind.CPU_OP, Kind.ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """When the host did what, on its own clock."""

    loader: Spans
    """Blocked in the loader, on the thread of the steps."""
    syncs: Places
    """Rows of synchronising calls that recorded steps made, on the threads that do the work."""
    syncing: Spans
    forward: Spans | None
    """`None` where nothing tells."""
    backward: Spans | None
    optimizer: Spans | None
    engine: Places
    """Rows of the autograd engine's functions."""
    operators: Places
    """Rows of operators; ranges around them are none."""
    operating: Spans
    """When any thread ran an operator."""
    calling: Spans
    """When any thread was in a call of the device's runtime."""


def host_work(table: EventTable, steps: StepSpans, device: DeviceWork) -> HostWork:
    """What the names of the host's events tell, and the copies that the device made for them."""
    syncs = named(table, SYNCHRONISING, Kind.RUNTIME)
    syncs = distinct(np.concatenate((syncs, _blocking_copies(table, device)))).astype(np.intp)
    # Not those outside: the profiler itself waits for the device when it stops.
    syncs = syncs[steps.holding(table.start_ns[syncs]) != NONE]
    syncs = syncs[np.isin(table.thread[syncs], _working_threads(table, steps, device))]
    engine = named(table, _ENGINE, *_HOST)
    if not len(engine):
        engine = named(table, _NODE, *_HOST)
    operators = table.rows(Kind.CPU_OP)
    operators = operators[~by_name(table, operators, MARKS.match)]
    return HostWork(
        loader=_on_thread(table, steps, _LOADER),
        syncs=syncs,
        syncing=_spans(table, syncs),
        forward=_forward(table, steps, operators, engine),
        backward=_on_thread(table, steps, _BACKWARD) or _spans(table, engine) or None,
        optimizer=_optimizing(table, steps, engine) or None,
        engine=engine,
        operators=operators,
        operating=_spans(table, operators),
        calling=_spans(table, table.rows(Kind.RUNTIME)),
    )


def _working_threads(table: EventTable, steps: StepSpans, device: DeviceWork) -> Places:
    """That of the steps and those that launch kernels: others may wait as long as they like.

    A thread that pins memory, or watches over collectives, holds nothing up.
    """
    launch = device.launch[device.kernel & (device.launch != NONE)]
    own = np.array([steps.thread] if steps.thread != NONE else [], np.intp)
    return np.concatenate((own, present(table.thread[launch])))


def _blocking_copies(table: EventTable, device: DeviceWork) -> Places:
    """Calls that copy from the device into ordinary memory: asynchronous by name only.

    `.item()` spends its wait there, not in the synchronisation that follows.
    """
    copies = np.flatnonzero(device.used_for(DeviceUse.FROM_DEVICE) & (device.launch != NONE))
    pageable = by_name(table, device.row[copies], lambda name: "Pageable" in name)
    return np.asarray(device.launch[copies[pageable]])


def _on_thread(table: EventTable, steps: StepSpans, pattern: "re.Pattern[str]") -> Spans:
    """When something so named ran, on the thread of the steps: a worker thread blocks nobody."""
    rows = named(table, pattern, *_HOST)
    if steps.thread != NONE:
        rows = rows[table.thread[rows] == steps.thread]
    return _spans(table, rows)


def _forward(
    table: EventTable, steps: StepSpans, operators: Places, engine: Places
) -> Spans | None:
    """By marks; else the operators whose sequence number a backward function names."""
    marked = _on_thread(table, steps, _FORWARD)
    if len(marked):
        return marked
    numbers = distinct(table.sequence[engine])
    numbers = numbers[numbers != NONE]
    if not len(numbers):
        return None
    own = operators[np.isin(table.sequence[operators], numbers)]
    backward = _spans(table, engine)
    return _spans(table, own[~backward.holds(table.start_ns[own])]) or None


def _optimizing(table: EventTable, steps: StepSpans, engine: Places) -> Spans:
    """The updates themselves: a step that is given a closure runs forward and backward first."""
    marks = _on_thread(table, steps, _OPTIMIZER)
    ends = np.sort(table.end_ns[engine])
    place = np.searchsorted(ends, marks.end, side="right")
    last = np.where(place > 0, ends[place - 1] if len(ends) else 0, marks.start)
    return union(np.maximum(marks.start, last), marks.end)


def _spans(table: EventTable, rows: Places) -> Spans:
    return union(table.start_ns[rows], table.end_ns[rows])


def host_columns(steps: StepSpans, host: HostWork, busy: Spans | None) -> StepColumns:
    """Host time of each step: in the loader, in its three parts, in operators, and in nothing.

    Args:
        steps: The steps.
        host: What the host did.
        busy: When the device worked; `None` without a device.
    """
    start, end = steps.start, steps.end
    working = either(host.operating, host.calling)
    parts = {
        "data_wait_s": host.loader,
        "cpu_op_s": host.operating,
        "forward_s": host.forward,
        "backward_s": host.backward,
        "optimizer_s": host.optimizer,
    }
    if busy is not None:
        working = either(working, busy)
        parts["data_wait_exposed_s"] = without(host.loader, busy)
    return {
        "hole_s": seconds(end - start - working.within(start, end)),
        **{
            name: seconds(spans.within(start, end))
            for name, spans in parts.items()
            if spans is not None
        },
    }


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
        return columns
    first_of_each = np.unique(_waits(table, host.syncs, forest), return_index=True)[1]
    waits = host.syncs[first_of_each]
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
    stacks = python_stacks(table, rows, forest)
    waits = zip(_waits(table, rows, forest).tolist(), table.duration_ns[rows].tolist(), strict=True)
    by_site = grouped(zip(zip(calls, stacks, strict=True), waits, strict=True))
    sites = [
        SyncSite(
            call=call,
            count=len({wait for wait, _ in mine}),
            total_s=sum(length for _, length in mine) / 1e9,
            stack=stack,
        )
        for (call, stack), mine in by_site.items()
    ]
    return tuple(
        sorted(sites, key=lambda site: (-site.total_s, site.call, site.stack))[: THRESHOLDS.rows]
    )


def _waits(table: EventTable, rows: Places, forest: Nest) -> Places:
    """A number for the wait that each call belongs to: calls of one operator are one wait."""
    place = forest.around(table, rows)
    return np.where(place == NONE, -1 - np.arange(len(rows)), place)


def _items(table: EventTable, forest: Nest) -> Places:
    """Each `.item()` once: the operator, and the scalar read that no such operator is around."""
    item, scalar = (by_name(table, forest.rows, name.__eq__) for name in (_ITEM, _SCALAR))
    inside = (forest.parent != NONE) & item[forest.parent]
    return np.asarray(forest.rows[item | (scalar & ~inside)])


def _around(table: EventTable, rows: Places, forest: Nest) -> Iterator[tuple[int, int]]:
    """Places in *rows*, each with the rows of the events around it, the innermost first."""
    for level in forest.ancestors(forest.around(table, rows)):
        for place in np.flatnonzero(level != NONE).tolist():
            yield place, int(forest.rows[level[place]])


def _calls(table: EventTable, rows: Places, forest: Nest) -> list[str]:
    """`aten::item` where one is around; else the outermost `aten` operator; else the call."""
    names = [table.label(int(row)) for row in rows]
    for place, row in _around(table, rows, forest):
        name = table.label(row)
        if name.startswith("aten::") and names[place] != _ITEM:
            names[place] = name
    return names


def python_stacks(table: EventTable, rows: Places, forest: Nest) -> list[tuple[str, ...]]:
    """Python frames around each row, innermost first; libraries' only where there are no others.

    Traces of 2021 give them with each operator: then those of the innermost that has some.
    """
    frames: list[list[str]] = [[] for _ in rows]
    if table.stack is not None:
        for place, row in _around(table, rows, forest):
            if table.stack[row] != NONE and not frames[place]:
                frames[place] = list(map(str.strip, table.texts[table.stack[row]].split(";")))
    else:
        python = table.rows(Kind.PYTHON)
        python = python[np.isin(table.thread[python], present(table.thread[rows]))]
        for place, row in _around(table, rows, nest(table, python)):
            frames[place].append(table.label(row))
    return [_kept(stack) for stack in frames]


def _kept(stack: list[str]) -> tuple[str, ...]:
    frames = [frame for frame in stack if not _BUILT_IN.match(frame)]
    own = [frame for frame in frames if not _LIBRARY.match(frame)]
    return tuple((own or frames)[: THRESHOLDS.frames])
