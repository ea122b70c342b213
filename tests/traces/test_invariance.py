"""What the profiler happened to number and how the file is ordered changes no answer."""

import numpy as np
import pytest
from support.planted import planted_steps
from support.traces import TRACES, needs_traces, table_of

from trainperf.traces.event_table import EventTable
from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read
from trainperf.traces.results import RankTrace


def shuffled(table: EventTable, seed: int) -> EventTable:
    """The same events from a file in another order, with other codes for names and streams."""
    random = np.random.default_rng(seed)
    events = []
    for row in random.permutation(len(table)):
        one = {
            name: int(getattr(table, name)[row])
            for name in ("start_ns", "duration_ns", "kind", "correlation", "external", "bytes")
        }
        one |= {
            name: int(getattr(table, name)[row])
            for name in ("device", "elements", "sequence", "total_bytes")
        }
        stream = int(table.stream[row])
        pid, tid = table.threads[table.thread[row]]
        one |= {"name": table.label(row), "thread": (pid, tid), "stream": stream}
        if stream >= 0:
            one |= {"stream": 1_000 - stream, "thread": (pid, str(1_000 - stream))}
        for name in ("shapes", "collective", "group", "dtype"):
            code = int(getattr(table, name)[row])
            one[name] = table.texts[code] if code >= 0 else None
        if table.stack is not None and table.stack[row] >= 0:
            one["stack"] = table.texts[table.stack[row]]
        events.append(one)
    return table_of(events, table.info)


def figures(trace: RankTrace) -> tuple[object, ...]:
    """What does not depend on how things are numbered."""
    return (
        trace.steps,
        trace.totals,
        trace.top_operators,
        trace.top_cpu_operators,
        trace.collectives,
        trace.sync_sites,
        trace.memory_peak_bytes,
        trace.reasons,
        trace.warnings,
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_order_and_numbers_change_nothing(seed: int) -> None:
    """Events shuffled, step marks anywhere, streams and names renumbered."""
    table = table_of(planted_steps(3))

    assert figures(analyse(shuffled(table, seed), "x")) == figures(analyse(table, "x"))


@needs_traces
@pytest.mark.parametrize(
    "name",
    ["dlrm_v100_8ranks/rank1", "ddp_a100_rank0of2", "infer_h100_vit", "resnet50_v100_workers0"],
)
def test_order_and_numbers_of_real_traces_change_nothing(name: str) -> None:
    """Whole microseconds, in which many events tie, and nanoseconds."""
    table = read(TRACES / f"{name}.pt.trace.json.gz")

    assert figures(analyse(shuffled(table, 1), "x")) == figures(analyse(table, "x"))
