"""What does one trace file say?  Its summary, and what the other ranks are compared with."""

import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import NONE, EventTable
from trainperf.traces.metrics.backward import backward_windows
from trainperf.traces.metrics.collectives import Collectives
from trainperf.traces.metrics.host import HostWork
from trainperf.traces.metrics.steps import StepSpans
from trainperf.traces.rank_report import summed_up, take_apart
from trainperf.traces.rank_results import Analysed, Key, RankCollectives, Wanted
from trainperf.traces.reader import read
from trainperf.traces.trace_files import TraceFile


_RANK = re.compile(r"(?:^|[^a-z])rank[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)

_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Kinds in which every rank waits for every other; in the rest some ranks go on at once."""


def attempt(file: TraceFile, wanted: Wanted) -> Analysed | str:
    """The analysis; of a file that nobody named and that is no trace, what is wrong with it."""
    try:
        return analysed(file.path, wanted)
    except TraceError as error:
        if file.demanded:
            raise
        return str(error)


def analysed(path: Path, wanted: Wanted) -> Analysed:
    """Read and analyse one file; raises `TraceError` if nothing of it can be used."""
    table = read(path)
    parts = take_apart(table)
    trace = summed_up(parts, path.name, lanes=wanted.lanes)
    named = _RANK.search(path.name)
    if trace.rank is None and named:
        trace = msgspec.structs.replace(trace, rank=int(named[1]))
    if wanted.hta:
        from trainperf.traces.hta import hta_breakdown  # noqa: PLC0415 seldom asked for

        found = hta_breakdown(table)
        said = () if found else ("HTA has no figures for a trace without a device",)
        trace = msgspec.structs.replace(trace, hta=found, warnings=(*trace.warnings, *said))
    compared = rank_collectives(table, parts.steps, parts.host, parts.collectives)
    return Analysed(trace=trace, collectives=compared)


def rank_collectives(
    table: EventTable, steps: StepSpans, host: HostWork, found: Collectives
) -> RankCollectives:
    """The collectives of the recorded steps that all ranks take part in, each with its key."""
    begin, _ = backward_windows(table, steps, host)
    seen: Counter[tuple[int, str, str]] = Counter()
    seconds: dict[Key, float] = {}
    backward: set[Key] = set()
    for place in np.argsort(found.start, kind="stable").tolist():
        step = int(found.step[place])
        if step == NONE or found.kind[place] not in _TOGETHER:
            continue
        kind = (int(steps.number[step]), found.group[place], found.kind[place])
        key = (*kind, seen[kind])
        seen[kind] += 1
        seconds[key] = int(found.end[place] - found.start[place]) / 1e9
        if found.asked[place] >= begin[step]:
            backward.add(key)
    return RankCollectives(
        seconds=seconds, backward=frozenset(backward), first=next(iter(seconds), None)
    )
