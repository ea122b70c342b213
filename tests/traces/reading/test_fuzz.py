"""Traces damaged at random: the reader answers with a table or with one line, and soon."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.trace_files import compact, flow, kernel, labels, operator, text
from support.traces import TRACES

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import EventTable, Kind
from trainperf.traces.reader import read


MADE = compact([operator("a", 1.5), flow(2), kernel("b", 3), operator('c"\\\n', 4)]).encode()
REAL = TRACES / "dlrm_v100_8ranks" / "rank0.pt.trace.json.gz"

TOKENS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"NaN", b"1e999", b"-", b"\0",
    b"\n", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u", b"},{", b'"ph":"X"', b'"traceEvents":[',
    b"]}", b"9" * 400, b"[" * 2000, b'{"a":' * 2000, b'"args":5', b"true", b'"ts":"1e9"',
]  # fmt: skip

Edit = tuple[int, int, bytes]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**31),
        st.integers(0, 40),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),
    ),
    min_size=1,
    max_size=6,
)
"""Places (modulo the length), how many bytes go there, and what comes instead."""


def some_events() -> bytes:
    """A stretch of a real trace, or a made one where there is none."""
    if not REAL.exists():
        return MADE
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    return json.dumps({**document, "traceEvents": document["traceEvents"][::60]}).encode()


def edited(body: bytes, edits: list[Edit]) -> bytes:
    """*body* with all edits made, one after the other."""
    for place, length, token in edits:
        at = place % (len(body) + 1)
        body = body[:at] + token + body[at + length :]
    return body


def outcome(folder: Path, body: bytes) -> EventTable | None:
    """The table of a file, checked to make sense; `None` if it was refused in one line."""
    path = folder / "trace.json"
    path.write_bytes(body)
    try:
        table = read(path)
    except TraceError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "\n" not in said
        return None
    assert int(table.duration_ns.min()) >= 0
    assert bool((np.diff(table.start_ns) >= 0).all())
    assert int(table.start_ns[0]) == 0
    assert int(table.name.max()) < len(table.names)
    assert int(table.thread.max()) < len(table.threads)
    assert int(table.shapes.max()) < len(table.texts)
    assert set(table.kind.tolist()) <= set(Kind)
    return table


@pytest.mark.parametrize("source", [MADE, some_events()], ids=["made", "real"])
@given(edits=EDITS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_trace_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, source: bytes, edits: list[Edit]
) -> None:
    """Never another error than ours, never a column that does not fit the others."""
    outcome(tmp_path_factory.mktemp("fuzz"), edited(source, edits))


COUNT = 12
NAMES = [letter * 4 for letter in "abcdefghijkl"]
"""One damaged is never another."""


@pytest.mark.parametrize("layout", ["compact", "pretty"])
@given(edits=EDITS.filter(lambda edits: len(edits) == 1), victim=st.integers(1, COUNT - 2))
@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_damage_to_one_event_costs_no_more_than_its_neighbours(
    tmp_path_factory: pytest.TempPathFactory, layout: str, edits: list[Edit], victim: int
) -> None:
    """All others are there, with their own times."""
    events = [operator(name, 1000.5 + 100 * row) for row, name in enumerate(NAMES)]
    whole = compact(events) if layout == "compact" else text(events, indent=1)
    begin = whole.index(f'"{NAMES[victim]}"')
    end = whole.index("}", begin)
    [(place, length, token)] = edits
    at = begin + place % (end - begin)
    body = whole[:at].encode() + token + whole[min(end, at + length) :].encode()

    table = outcome(tmp_path_factory.mktemp("fuzz"), body)

    found = dict(zip(labels(table), (table.start_ns + table.base_ns).tolist(), strict=True))
    for number in set(range(COUNT)) - {victim - 1, victim, victim + 1}:
        clock_ns = 1_700_000_000_000_000_000
        assert found.get(NAMES[number]) == clock_ns + 1_000_500 + 100_000 * number
