"""The same figures by counting single microseconds of real traces, without interval algebra."""

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from support.traces import TRACES, needs_traces

from trainperf.traces.event_table import EventTable, Kind
from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read


pytestmark = needs_traces

Moments = npt.NDArray[np.bool_]
WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
SYNCS = re.compile(r"cuda(Stream|Device|Event)Synchronize$|cudaFree$|cudaMemcpy$")


@dataclass
class Counted:
    """One flag per microsecond; the trace has one step."""

    table: EventTable
    step: tuple[int, int] = (0, 0)
    painted: dict[str, Moments] = field(default_factory=dict)
    work: list[tuple[int, int, int]] = field(default_factory=list)
    """Start, end, and launch or -1."""
    launches: dict[int, int] = field(default_factory=dict)

    def paint(self, name: str, start: int, end: int) -> None:
        """These microseconds are of that name."""
        length = self.table.end_ns.max() // 1000 + 2
        self.painted.setdefault(name, np.zeros(length, bool))[start:end] = True

    def in_step(self, at: int) -> bool:
        """Whether the step holds a microsecond."""
        return self.step[0] <= at < self.step[1]

    def of(self, name: str) -> Moments:
        """The microseconds of a name."""
        self.paint(name, 0, 0)
        return self.painted[name]


def count(table: EventTable) -> Counted:
    """Walk over the rows, one by one."""
    counted = Counted(table)
    starts, ends = table.start_ns // 1000, table.end_ns // 1000
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    for row, span in enumerate(spans):
        if table.label(row).startswith("ProfilerStep#") and table.stream[row] < 0:
            counted.step = span
    for row, span in enumerate(spans):
        count_host(counted, row, span)
    for row, span in enumerate(spans):
        if table.kind[row] in WORK:
            count_work(counted, row, span, spans)
    return counted


def count_host(counted: Counted, row: int, span: tuple[int, int]) -> None:
    """The loader, the calls that wait, and who launched what."""
    name, table = counted.table.label(row), counted.table
    if name.startswith("enumerate(DataLoader)"):
        counted.paint("loader", *span)
    if table.kind[row] == Kind.RUNTIME:
        counted.launches.setdefault(int(table.correlation[row]), row)
        if SYNCS.match(name) and counted.in_step(span[0]):
            counted.paint("sync", *span)


def count_work(
    counted: Counted, row: int, span: tuple[int, int], spans: list[tuple[int, int]]
) -> None:
    """A kernel, a copy or a set, and whether the step launched it."""
    name, table = counted.table.label(row), counted.table
    launch = counted.launches.get(int(table.correlation[row]))
    at = -1 if launch is None else spans[launch][0]
    counted.work.append((*span, at))
    counted.paint("busy", *span)
    communicates = "nccl" in name
    if table.kind[row] == Kind.KERNEL and not communicates:
        counted.paint("computing", *span)
    if launch is not None and counted.in_step(at):
        counted.paint("own", *span)
        counted.paint("comm" if communicates else "other", *span)
        if "DtoH" in name and "Pageable" in name:
            counted.paint("sync", *spans[launch])


def causes(counted: Counted) -> dict[str, int]:
    """Each idle microsecond between the first and the last work of the step, by its cause."""
    busy, loader, sync = (counted.of(name) for name in ("busy", "loader", "sync"))
    own = np.flatnonzero(counted.of("own"))
    out = dict.fromkeys(("data_wait", "sync", "host_bound", "other"), 0)
    at, end = int(own[0]), int(own[-1]) + 1
    while at < end:
        if busy[at]:
            at += 1
            continue
        until = at + int(np.argmax(busy[at:]))
        late = next(launch for start, _, launch in counted.work if start == until) >= at
        for moment in range(at, until):
            if loader[moment]:
                out["data_wait"] += 1
            elif sync[moment]:
                out["sync"] += 1
            else:
                out["host_bound" if late else "other"] += 1
        at = until
    return out


@pytest.mark.parametrize("rank", [0, 1, 3, 4, 7])
def test_figures_are_what_counting_gives(rank: int) -> None:
    """To the microsecond: these traces have whole ones."""
    table = read(TRACES / "dlrm_v100_8ranks" / f"rank{rank}.pt.trace.json.gz")
    (step,) = analyse(table, "x", lanes=False).steps
    counted = count(table)
    window = slice(*counted.step)
    busy, comm, computing = (counted.of(name) for name in ("busy", "comm", "computing"))

    expected = {
        "step_s": counted.step[1] - counted.step[0],
        "gpu_busy_s": counted.of("own").sum(),
        "comm_s": comm.sum(),
        "comm_exposed_s": (comm & ~computing).sum(),
        "data_wait_s": counted.of("loader")[window].sum(),
        "data_wait_exposed_s": (counted.of("loader") & ~busy)[window].sum(),
        "sync_s": counted.of("sync")[window].sum(),
        **{f"idle_{cause}_s": moments for cause, moments in causes(counted).items()},
    }

    found = {name: round(getattr(step, name) * 1e6, 3) for name in expected}
    assert found == expected
