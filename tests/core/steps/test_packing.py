"""Parts of record files are packed and read back, whatever happens meanwhile."""

import io
import struct
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import MS, RankSpec, encode_rank, make_gap, make_info, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.parts import EDGE_BYTES
from trainperf.analysis.run.record_file import end_of
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import Gap
from trainperf.core.run_directory import packed_part, record_part
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.codec import encode_entry
from trainperf.core.steps.packed import STRETCH, assembled, contents, read_header
from trainperf.core.steps.packing import pack_parts
from trainperf.core.steps.records import CORE_COLUMNS, Totals


EARLY = Path(__file__).parent / "early.packed"
WHOLE = st.integers(-(2**52), 2**52).map(float)
CELLS = st.one_of(WHOLE, st.just(float("nan")), st.floats(allow_infinity=True, width=64))

STEPS = 5000
NAME = "steps-rank0.jsonl"


def content() -> bytes:
    """A run of five thousand steps, one of which has no tail."""
    steps = make_steps(STEPS, facts={"tail_ns": 3 * MS, "loss": 0.1}, forward=30, backward=55)
    gaps = [make_gap(Gap.VALIDATION, 700, start_ns=85 * MS * 2500, after_step=2499)]
    spec = RankSpec(steps=steps, info=make_info(), gaps=gaps, totals=Totals(at_step=STEPS - 1))
    return encode_rank(spec)


def in_parts(run: Path, lines_each: int = 2100) -> Path:
    """Write the run in parts of so many lines; returns the first."""
    run.mkdir(parents=True, exist_ok=True)
    lines = content().splitlines(keepends=True)
    for part, begin in enumerate(range(0, len(lines), lines_each)):
        path = run / record_part(NAME, part)
        path.write_bytes(b"".join(lines[begin : begin + lines_each]))
    return run / NAME


def same(first: StepBlock, second: StepBlock) -> bool:
    """Whether they have the same numbers in the same places, and lack the same."""
    return np.array_equal(first.cells, second.cells, equal_nan=True)


def steps_read(run: Path) -> StepBlock:
    """All steps of the first rank."""
    entries = Run.open(run).attempts[0][0].entries()
    return StepBlock.joined([entry for entry in entries if isinstance(entry, StepBlock)])


def test_a_packed_run_reads_like_the_lines_it_was(tmp_path: Path) -> None:
    """Every step, bit for bit, and the same summary; the last part stays as it is."""
    whole = tmp_path / "whole" / NAME
    whole.parent.mkdir()
    whole.write_bytes(content())
    first = in_parts(tmp_path / "parts")
    lines = first.stat().st_size

    assert pack_parts(first) == 2
    assert packed_part(first).stat().st_size < lines / 5, "equal steps take next to nothing"

    names = sorted(path.name for path in first.parent.iterdir())
    assert names == ["steps-rank0.packed", "steps-rank0.part1.packed", "steps-rank0.part2.jsonl"]
    assert same(steps_read(first.parent), steps_read(whole.parent))
    ours, theirs = (summarize(Run.open(path.parent)) for path in (first, whole))
    for name, reading in theirs.readings.items():
        assert ours.value(name) == pytest.approx(reading.value), name
    assert ours.ledger_s == theirs.ledger_s
    assert ours.warnings == theirs.warnings == ()


def test_nothing_is_missing_or_comes_twice_whatever_happens_meanwhile(tmp_path: Path) -> None:
    """It is packed under a reader's hands; a crash leaves the lines as well, and half a draft."""
    first = in_parts(tmp_path)
    before, lines, opened = steps_read(tmp_path), first.read_bytes(), Run.open(tmp_path)
    pack_parts(first)
    entries = opened.attempts[0][0].entries()
    read = [entry for entry in entries if isinstance(entry, StepBlock)]
    assert same(StepBlock.joined(read), before)

    first.write_bytes(lines)
    (tmp_path / ".steps-rank0.packed-77.tmp").write_bytes(b"half")
    assert same(steps_read(tmp_path), before)
    assert pack_parts(first) == 0, "both are there: the other one is taken away"
    assert not first.exists()


def test_a_damaged_part_stays_as_it_is(tmp_path: Path) -> None:
    """Nothing is thrown away that somebody may still mend."""
    first = in_parts(tmp_path)
    damaged = first.read_bytes().replace(b"[7,", b"[?,", 1)
    first.write_bytes(damaged)
    assert pack_parts(first) == 1
    assert first.read_bytes() == damaged


def test_a_packed_part_that_rots_is_named(tmp_path: Path) -> None:
    """What follows the damage in it is missing, and said; no number is made up."""
    first = in_parts(tmp_path)
    pack_parts(first)
    packed = packed_part(first)
    rotten = bytearray(packed.read_bytes())
    rotten[-50:] = bytes(50)
    packed.write_bytes(rotten)
    entries = list(Run.open(tmp_path).attempts[0][0].entries())
    assert [entry for entry in entries if isinstance(entry, int)]


@pytest.mark.parametrize("lines", [0, 1])
def test_a_packed_part_without_its_index_is_skipped_and_said(tmp_path: Path, lines: int) -> None:
    """Nothing behind it is read, as behind a part that is missing."""
    first = in_parts(tmp_path)
    pack_parts(first)
    packed = packed_part(first.with_name(record_part(NAME, 1)))
    before = packed.read_bytes().split(b"\n")[:lines]
    packed.write_bytes(b"\n".join([*before, b"cut short"]))
    run = Run.open(tmp_path)
    assert any("part1.packed" in warning for warning in run.warnings)
    assert len(steps_read(tmp_path)) < 2200


def test_the_last_step_is_known_before_totals_that_are_long(tmp_path: Path) -> None:
    """Those of many hooks; the next attempt is numbered on from it."""
    steps = make_steps(STEPS, forward=30)
    hooks = {f"Callback{number}.on_train_batch_end": number for number in range(3_000)}
    totals = Totals(at_step=STEPS - 1, actions_ns=hooks)
    lines = encode_rank(RankSpec(steps=steps, info=make_info(), totals=totals)).splitlines(True)
    (tmp_path / NAME).write_bytes(b"".join(lines[:2100]))
    (tmp_path / record_part(NAME, 1)).write_bytes(b"".join(lines[2100:]))
    pack_parts(tmp_path / NAME)

    assert len(lines[-2]) > EDGE_BYTES
    assert end_of(Run.open(tmp_path).attempts[0][0]).step == STEPS - 1


@settings(max_examples=60, deadline=None)
@given(st.lists(CELLS, min_size=1, max_size=9), st.integers(1, 2 * STRETCH + 1))
def test_what_is_unpacked_is_what_was_packed(cells: list[float], steps: int) -> None:
    """Whole numbers of any size, missing cells, fractions, infinities; numpy reads it too."""
    matrix = np.resize(cells, (steps, len(CORE_COLUMNS)))
    matrix[:, :12] = np.arange(steps)[:, None]
    facts = np.resize(cells, (steps, 1))
    info = msgspec.structs.replace(make_info(), columns=("loss",))
    block = StepBlock(StepSchema(("loss",)), np.concatenate((matrix, facts), axis=1))

    with io.BytesIO(assembled(info, block, [b"{}"])) as file:
        lines, *blocks = contents(file)
        file.seek(0)
        _, part = read_header(file)
        archive = np.load(file)

    assert lines == [b"{}"]
    assert same(StepBlock.joined(blocks), block)
    assert (part.first, part.last) == (0, steps - 1)
    assert len(archive.files) == 1 + len(blocks)


def test_parts_of_earlier_releases_are_read(tmp_path: Path) -> None:
    """That of November 2026: 1,500 steps, and a validation."""
    (tmp_path / "steps-rank0.packed").write_bytes(EARLY.read_bytes())
    steps = make_steps(1500, facts={"tail_ns": 3 * MS, "loss": 0.1}, forward=30, backward=55)
    gaps = [make_gap(Gap.VALIDATION, 700, start_ns=85 * MS * 1200, after_step=1199)]
    lines = tmp_path / "lines" / NAME
    lines.parent.mkdir()
    spec = RankSpec(steps=steps, info=make_info(), gaps=gaps, totals=Totals(at_step=1499))
    lines.write_bytes(encode_rank(spec))

    assert same(steps_read(tmp_path), steps_read(lines.parent))
    assert end_of(Run.open(tmp_path).attempts[0][0]).step == 1499
    ours, theirs = (summarize(Run.open(path)) for path in (tmp_path, lines.parent))
    assert ours.ledger_s == theirs.ledger_s


def test_columns_of_the_earliest_releases_are_read() -> None:
    """Constants, differences from the number before, and floats of four bytes."""
    kinds = [(2, 0, 1, 5), *((0, 0, 0, 0) for _ in CORE_COLUMNS[1:]), (4, 1, 0, 0)]
    heads = b"".join(struct.pack("<BBBq", *kind) for kind in kinds)
    # 5, 6, 4: differences 1 and -2, their sign in the lowest bit.
    bodies = bytes([0, 2, 3]) + struct.pack("<d", 7.0) * (len(CORE_COLUMNS) - 1)
    losses = np.array([0.5, 2.0], "<f4").view(np.uint8).reshape(2, 4).T
    bodies += bytes([0b01000000]) + losses.tobytes()
    columns = zlib.compress(heads + bodies)
    index = zlib.compress(np.array([[0, 2, 3, 3, 0, 99, 0, len(columns)]], "<f8").T.tobytes())
    info = msgspec.structs.replace(make_info(), columns=("loss",))
    layout = {"kind": "packed", "schema": 1, "stretches": 1, "index_bytes": len(index)}
    line = msgspec.json.encode({**layout, "others_bytes": 0}) + b"\n"

    (block,) = contents(io.BytesIO(encode_entry(info) + line + index + columns))

    assert block.index.tolist() == [5.0, 6.0, 4.0]
    assert block.micro_batches.tolist() == [7.0] * 3
    assert np.array_equal(block.values("loss"), [0.5, np.nan, 2.0], equal_nan=True)
