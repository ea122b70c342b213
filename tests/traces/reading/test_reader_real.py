"""What the reader makes of real traces, event by event, against a loader that shares no code."""

from collections import Counter
from pathlib import Path

import pytest
from support.traces import TRACES, load, needs_traces

from trainperf.traces.event_table import NONE, EventTable, Losses
from trainperf.traces.reader import read


EVERY = sorted(TRACES.rglob("*.json.gz"))
COMPARED = [path for path in EVERY if path.stat().st_size < 1_000_000 and "rank7" not in path.name]
"""The independent loader takes a second for ten megabytes."""


def stem(path: Path) -> str:
    """The name of a trace without its endings."""
    return path.name.split(".")[0]


def rows_of(table: EventTable) -> Counter[tuple[object, ...]]:
    """Every event but the profiler's own span, with the clock's zero at the first of them."""
    mine = [row for row in range(len(table)) if not table.label(row).startswith("PyTorch Profiler")]
    first = int(table.start_ns[mine[0]])
    return Counter(
        (
            int(table.start_ns[row]) - first,
            int(table.duration_ns[row]),
            table.label(row),
            table.threads[table.thread[row]],
            int(table.correlation[row]),
            int(table.external[row]) or NONE,
            int(table.sequence[row]),
            int(table.python_id[row]),
            int(table.python_parent[row]),
            int(table.elements[row]),
        )
        for row in mine
    )


@needs_traces
@pytest.mark.parametrize("path", COMPARED, ids=stem)
def test_every_event_of_a_real_trace_is_read_to_the_nanosecond(path: Path) -> None:
    """Names, threads, times and ids are those of the file, whatever year and device it is of."""
    assert rows_of(read(path)) == rows_of(load(path))


@needs_traces
@pytest.mark.parametrize("path", EVERY, ids=stem)
def test_nothing_of_a_real_trace_is_lost(path: Path) -> None:
    """Sound files have no losses; a reader that says otherwise is not believed when it matters."""
    assert read(path).losses == Losses()
