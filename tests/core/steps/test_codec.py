"""Lines on disk: what is written comes back, and damage is left out and counted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.blocks import records_of, row_of

from trainperf.core.errors import RunError
from trainperf.core.phases import PHASES
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import (
    decode_entry,
    decode_info,
    decode_steps,
    encode_entry,
    encode_rows,
)
from trainperf.core.steps.records import (
    CORE_COLUMNS,
    FACTS,
    SCHEMA_VERSION,
    EndMark,
    GapRecord,
    RunInfo,
    StepRecord,
    Totals,
)


COLUMNS = ("samples", "loss", "loss_scale")
SCHEMA = StepSchema(COLUMNS, "cpu")
NS = st.integers(0, 2**50)
FACT = st.one_of(st.none(), st.integers(0, 2**40), st.floats(0.001, 1e6))

STEPS = st.builds(
    StepRecord,
    index=st.integers(0, 10**9),
    start_ns=NS,
    tags=st.integers(0, 1023),
    micro_batches=st.integers(1, 64),
    host_ns=st.tuples(*[NS] * len(PHASES)),
    facts=st.fixed_dictionaries(dict.fromkeys(COLUMNS, FACT)),
)


@given(steps=st.lists(STEPS, max_size=20))
def test_steps_come_back_as_they_were_written(steps: list[StepRecord]) -> None:
    """Times to the nanosecond, floats to the last bit, missing facts missing."""
    lines = encode_rows([row_of(step, SCHEMA) for step in steps]).splitlines()

    block, damaged = decode_steps(SCHEMA, lines)

    assert damaged == 0
    assert records_of(block) == steps


@pytest.mark.parametrize(
    "entry",
    [
        GapRecord(gap="validation", start_ns=5, duration_ns=7, after_step=3),
        Totals(at_step=9, actions_ns={"A.b": 4}, sequence_lengths={128: 2}, faults={"x": "y"}),
        EndMark(reason="finished", fit_ns=12, steps=3),
    ],
)
def test_gaps_totals_and_end_marks_come_back(entry: GapRecord | Totals | EndMark) -> None:
    """One object a line, told apart by its kind."""
    assert decode_entry(encode_entry(entry)) == entry


def test_the_header_comes_back() -> None:
    """Line 1 says who the run was."""
    config = {"lr": 0.1, "x": None}
    info = RunInfo(rank=3, world_size=8, columns=COLUMNS, config=config)

    assert decode_info(encode_entry(info)) == info


def test_what_another_release_writes_besides_is_passed_over() -> None:
    """Of an earlier one the pace at the ends of a fit, of a later one anything."""
    header = b'{"kind":"run","schema":1,"rank":0,"pace_ns":210000,"a later field":1}'
    end = b'{"kind":"end","reason":"finished","fit_ns":12,"steps":3,"pace_ns":210000}'

    assert decode_info(header) == RunInfo()
    assert decode_entry(end) == EndMark(reason="finished", fit_ns=12, steps=3)


@pytest.mark.parametrize(
    "line",
    [
        b"[1,2,3]",
        b"[",
        b"\x00\xff",
        b"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]",
        b'["a"]',
        b"[[1]]",
    ],
)
def test_a_damaged_step_among_others_is_left_out_and_counted(line: bytes) -> None:
    """The lines around it are not lost."""
    step = StepRecord(index=1, start_ns=2, host_ns=(3,) * len(PHASES), facts={"samples": 4})
    good = encode_rows([row_of(step, SCHEMA)]).strip()

    block, damaged = decode_steps(SCHEMA, [good, line, good])

    assert (len(block), damaged) == (2, 1)


@pytest.mark.parametrize("cell", [None, 1e300])
def test_a_time_that_is_missing_or_impossible_is_damage(cell: float | None) -> None:
    """A fact may be missing, a phase may not; no true duration is beyond what a float can count."""
    row = [0.0] * 12 + [1.0] * len(COLUMNS)
    row[5] = cell

    block, damaged = decode_steps(SCHEMA, [msgspec.json.encode(row)])

    assert (len(block), damaged) == (0, 1)


def test_another_schema_version_is_named() -> None:
    """The reader is told which version it has and which it needs."""
    header = msgspec.json.encode({"kind": "run", "schema": SCHEMA_VERSION + 1})

    with pytest.raises(RunError, match=rf"version {SCHEMA_VERSION + 1}.*version {SCHEMA_VERSION}"):
        decode_info(header)


@pytest.mark.parametrize("line", [b"", b"{}", b"hello", b'{"kind":"run"}', b"[1]", b"\xff{"])
def test_a_foreign_first_line_is_refused(line: bytes) -> None:
    """Any other JSON lines file is not ours."""
    with pytest.raises(RunError, match="not a trainperf"):
        decode_info(line)


@given(line=st.binary(max_size=80))
def test_no_bytes_make_the_decoder_raise(line: bytes) -> None:
    """Damage is an answer, never a traceback."""
    decode_entry(line)
    decode_steps(SCHEMA, [line])


def test_durations_take_no_more_than_their_digits() -> None:
    """Integers stay integers on disk: 200 bytes a step is a promise."""
    step = StepRecord(index=1, start_ns=2, host_ns=(3,) * len(PHASES))

    assert encode_rows([row_of(step, StepSchema())]) == b"[1,2,0,1,3,3,3,3,3,3,3,3]\n"


def test_every_fact_says_what_it_means() -> None:
    """The record format documents itself."""
    assert all(fact.meaning and fact.unit in {"ns", "B", "1"} for fact in FACTS.values())


def test_rows_cut_short_anywhere_are_counted_and_the_others_read() -> None:
    """At every byte of the last of three lines."""
    schema = StepSchema(("samples", "loss"))
    row = [*range(len(CORE_COLUMNS)), None, -2.5e-7]
    line = msgspec.json.encode(row)
    for cut in range(1, len(line)):
        block, damaged = decode_steps(schema, [line, line[:cut], line])

        assert (len(block), damaged) == (2, 1)
    assert decode_steps(schema, [line] * 3)[1] == 0


def test_lines_keep_their_order() -> None:
    """Also when one in the middle is damaged."""
    schema = StepSchema()
    rest = [0] * (len(CORE_COLUMNS) - 1)
    lines = [msgspec.json.encode([step, *rest]) for step in range(5000)]

    whole, _ = decode_steps(schema, lines)
    lines[2500] = lines[2500][:-2]
    damaged, left_out = decode_steps(schema, lines)

    assert whole.index.tolist() == list(range(5000))
    assert damaged.index.tolist() == [step for step in range(5000) if step != 2500]
    assert left_out == 1
