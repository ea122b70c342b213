"""Windows of a run, by steps and by time."""

from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path

import pytest
from support.runs import MS, RankSpec, encode_rank, make_gap, make_info, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import RunError
from trainperf.core.phases import Gap
from trainperf.core.run_directory import record_file, record_part
from trainperf.core.steps.codec import encode_entry
from trainperf.core.steps.own_sums import rollout_sums
from trainperf.core.steps.packing import pack_parts
from trainperf.core.steps.records import Totals
from trainperf.core.window import RunWindow


STEPS, STEP_MS = 20_000, 85
PART_LINES = 6_000


@cache
def lines_of(rank: int, ranks: int, attempt: int) -> list[bytes]:
    """Of a rank: a validation every 5,000 steps, a collection in every hundredth."""
    steps = make_steps(STEPS, facts={"gc_ns": MS, "peak_bytes": 5}, forward=30, backward=55)
    gaps = [
        make_gap(Gap.VALIDATION, 700, start_ns=STEP_MS * MS * after, after_step=after)
        for after in range(4_999, STEPS, 5_000)
    ]
    totals = Totals(at_step=STEPS - 1, actions_ns={"Callback.on_batch_end": 1000 * (STEPS - 1)})
    info = make_info(rank=rank, world_size=ranks)
    spec = RankSpec(steps=steps, info=info, gaps=gaps, totals=totals, attempt=attempt)
    return encode_rank(spec).splitlines(keepends=True)


def days(run: Path, *, ranks: int = 2, packed: bool = True, attempt: int = 0) -> Path:
    """A run in parts."""
    run.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        lines = lines_of(rank, ranks, attempt)
        first = record_file(run, rank, attempt)
        for part, begin in enumerate(range(0, len(lines), PART_LINES)):
            name = record_part(first.name, part)
            (run / name).write_bytes(b"".join(lines[begin : begin + PART_LINES]))
        if packed:
            pack_parts(first)
    return run


def steps_of(run: Run) -> list[int]:
    """Numbers of the steps that are read."""
    return [int(step) for blocks in Replay(run).blocks() for step in blocks[0].index]


@pytest.mark.parametrize("packed", [True, False])
def test_a_window_of_steps_is_read_and_nothing_else(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """Its pauses and its time are those of the window; what is packed makes no difference."""
    run = Run.open(days(tmp_path, packed=packed), RunWindow(first=7_000, last=11_999))
    summary = summarize(run)

    assert steps_of(run) == list(range(7_000, 12_000))
    assert summary.run.steps == summary.run.steady_steps == 5_000
    assert summary.gaps == {"validation": 1}
    assert summary.run.fit_s == pytest.approx(5_000 * STEP_MS / 1e3 + 0.7)
    assert summary.run.window == "steps 7,000 to 11,999"


def test_a_window_of_time_counts_from_the_end_of_the_run(tmp_path: Path) -> None:
    """The last minute is 705 steps of 85 ms, less what the validations took; or a moment."""
    run = days(tmp_path)
    last = steps_of(Run.open(run, RunWindow(since=timedelta(minutes=1))))
    assert last[-1] == STEPS - 1
    assert 660 <= len(last) <= 706

    begins = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
    moment = begins + timedelta(milliseconds=STEP_MS * 12_000)
    early = steps_of(Run.open(run, RunWindow(since=moment, until=moment + timedelta(seconds=17))))
    assert (early[0], early[-1]) == (12_000, 12_200)


def test_a_window_reaches_into_a_later_attempt(tmp_path: Path) -> None:
    """Steps go on being numbered there, whatever is read of the attempt before."""
    days(tmp_path, ranks=1)
    run = days(tmp_path, ranks=1, attempt=1)
    assert steps_of(Run.open(run, RunWindow(first=19_990, last=20_009))) == [*range(19_990, 20_010)]
    assert steps_of(Run.open(run, RunWindow(first=25_000, last=25_003))) == [*range(25_000, 25_004)]


def test_a_rank_whose_first_packed_part_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    """The others can be read: their report is not refused for it."""
    run = days(tmp_path)
    damaged = run / "steps-rank1.packed"
    header, *_ = damaged.read_bytes().split(b"\n", 1)
    damaged.write_bytes(header + b"\n{\n")

    opened = Run.open(run)

    assert opened.ranks == (0,)
    assert any("steps-rank1.packed: damaged index" in warning for warning in opened.warnings)
    assert len(steps_of(opened)) == STEPS

    (run / "steps-rank0.packed").write_bytes(damaged.read_bytes())
    with pytest.raises(RunError, match="damaged index"):
        Run.open(run)


THERE = "the run has steps 0 to 99, and began at 2026-11-01T12:00:00"


@pytest.mark.parametrize(
    ("number", "window", "says"),
    [
        (100, RunWindow(first=100), THERE),
        # Whoever asks by time cannot do anything with the numbers of steps.
        (100, RunWindow(since=datetime(2027, 1, 1, tzinfo=timezone.utc)), THERE),
        (100, RunWindow(since=timedelta(seconds=0.1), until=timedelta(seconds=0.5)), THERE),
        # It has no steps *0 to -1*.
        (0, RunWindow(first=0, last=10), "the run has no step at all"),
    ],
)
def test_a_window_without_a_step_is_refused(
    number: int, window: RunWindow, says: str, tmp_path: Path
) -> None:
    """With the steps that there are, and when the run was."""
    spec = RankSpec(steps=make_steps(number, forward=10), info=make_info())
    (tmp_path / "steps-rank0.jsonl").write_bytes(encode_rank(spec))

    with pytest.raises(RunError, match=f"no step in this window: {says}"):
        Run.open(tmp_path, window)


def test_a_window_in_which_no_answer_was_useless_says_so(tmp_path: Path) -> None:
    """Counts that did not grow in it are not in what it has of them."""
    answers = rollout_sums(answers=4, tokens=40, longest=20, median=8)
    counted = {"steps": 1, **answers, "judged": 1, "useless": 500_000}
    later = {name: 2 * count for name, count in counted.items()} | {"useless": 500_000}
    totals = [Totals(at_step=9, own=counted), Totals(at_step=19, own=later)]
    spec = RankSpec(steps=make_steps(20, forward=10), info=make_info(), end=None)
    lines = [encode_rank(spec), *map(encode_entry, totals)]
    (tmp_path / "steps-rank0.jsonl").write_bytes(b"".join(lines))

    facts = summarize(Run.open(tmp_path, RunWindow(first=10))).answers

    assert facts is not None
    assert (facts.number, facts.useless) == (4, 0.0)
