"""One trace, written in every way that tools write it, is one table."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trace_files import (
    BESIDE,
    compact,
    flow,
    kernel,
    operator,
    operators,
    read_text,
    text,
)

from trainperf.traces.event_table import EventTable, Losses


EVENTS = [operator("aten::mm", 10.125, 7.5), flow(11), kernel("gemm", 12.001, 3.25)]
"""A launch, its arrow, its kernel."""


def everything(table: EventTable) -> list[Any]:
    """All that a table says, for comparing two."""
    columns = [
        getattr(table, name).tolist()
        for name in table.__slots__
        if isinstance(getattr(table, name), np.ndarray)
    ]
    return [*columns, table.names, table.texts, table.threads, table.base_ns, table.info]


def reordered(event: dict[str, Any]) -> dict[str, Any]:
    """The same event with its keys the other way round."""
    return dict(reversed(event.items()))


LAYOUTS = {
    "pretty-printed": text(EVENTS, indent=2),
    "with a mark of its encoding": f"\ufeff{compact(EVENTS)}",
    "with tabs": text(EVENTS, indent="\t"),
    "with Windows line ends": text(EVENTS, indent=1).replace("\n", "\r\n"),
    "with blanks everywhere": text(EVENTS, separators=(" ,  ", " :\t")),
    "keys of events reversed": compact([reordered(event) for event in EVENTS]),
    "events first": json.dumps({"traceEvents": EVENTS, **BESIDE}),
    "events in the middle": json.dumps(
        {"schemaVersion": 1, "traceEvents": EVENTS, "otherData": {"a": [{"b": "]}"}]}, **BESIDE}
    ),
    "events twice": json.dumps({**BESIDE, "traceEvents": EVENTS[:1]})[:-1]
    + f', "traceEvents": {json.dumps(EVENTS[1:])}}}',
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layout_does_not_matter(tmp_path: Path, layout: str) -> None:
    """Whitespace, order of keys and the place of the events change nothing; nothing is lost."""
    table = read_text(tmp_path, layout)

    assert everything(table) == everything(read_text(tmp_path, compact(EVENTS)))
    assert table.losses == Losses()


def test_a_list_of_events_is_a_trace(tmp_path: Path) -> None:
    """The root of old traces is the list; what stands beside the events is then unknown."""
    table = read_text(tmp_path, json.dumps(EVENTS))

    assert table.names == ["aten::mm", "gemm"]
    assert table.info.rank is None
    assert table.losses == Losses()


@pytest.mark.parametrize("layout", ["compact", "pretty"])
def test_a_trace_of_many_chunks_is_one_table(tmp_path: Path, layout: str) -> None:
    """Ten thousand events do not fit one chunk; none is lost or read twice at a cut."""
    events = operators(10_000)
    body = compact(events) if layout == "compact" else text(events, indent=2)

    table = read_text(tmp_path, body)

    assert len(body) > 2**20
    assert [table.label(row) for row in range(len(table))] == [e["name"] for e in events]
    assert table.start_ns.tolist() == [100_000 * number for number in range(10_000)]
    assert table.losses == Losses()


INSIDE = {
    # A cut inside an event does not decode, so it is not made, however likely it looks.
    "lists of objects": [
        operator(f"op{n}", n, extra=[{"ph": "X", "name": "no event", "ts": 1, "dur": 1}] * 50)
        for n in range(1_000)
    ],
    # Brackets, quotes and whole events inside a name end nothing.
    "texts": [operator('x"}],"traceEvents":[{"ph":"X"},{"ph":"X"}]}\\', 1), *operators(3)],
}


@pytest.mark.parametrize("events", INSIDE.values(), ids=INSIDE.keys())
def test_what_looks_like_events_inside_of_one_is_no_boundary(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    """Each event is read, and once."""
    table = read_text(tmp_path, compact(events))

    assert sorted(table.names) == sorted(event["name"] for event in events)
    assert len(table) == len(events)
    assert table.losses == Losses()
