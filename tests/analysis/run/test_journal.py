"""The ledger sums to the fit, whatever the fit was."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import (
    MS,
    RankSpec,
    encode_rank,
    make_gap,
    make_info,
    make_run_dir,
    make_step,
    make_steps,
)

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import UNATTRIBUTED, Journal
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.run.replay import Replay
from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.core.steps.block import StepBlock


def journal(path: Path, ranks: list[RankSpec]) -> Journal:
    """The journal of rank 0 after a replay."""
    replay = Replay(Run.open(make_run_dir(path / "run", ranks)))
    list(replay.blocks())
    return replay.journals[0]


def test_every_second_is_under_its_phase_or_gap(tmp_path: Path) -> None:
    """Planted: 1 s of steps, 0.3 s of validation in two pauses, 0.2 s of start, 0.05 s in none."""
    spec = RankSpec(
        steps=make_steps(10, data_wait=40, forward=60),
        gaps=[
            make_gap(Gap.STARTUP, 200),
            make_gap(Gap.VALIDATION, 100),
            make_gap(Gap.VALIDATION, 200),
        ],
        fit_ns=1550 * MS,
    )

    found = journal(tmp_path, [spec])

    ledger = found.ledger_s()
    assert (ledger["data_wait"], ledger["forward"], ledger["loop"]) == (0.4, 0.6, 0.0)
    assert (ledger["startup"], ledger["validation"]) == (0.2, 0.3)
    assert ledger[UNATTRIBUTED] == 0.05
    assert len(found.pauses["validation"]) == 2


@given(
    walls=st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=8), min_size=1, max_size=9),
    gaps=st.lists(st.tuples(st.sampled_from(GAPS), st.integers(0, 10**9)), max_size=9),
    slack=st.integers(-(10**8), 10**8),
)
def test_it_sums_to_the_fit_to_the_nanosecond(
    walls: list[list[int]], gaps: list[tuple[Gap, int]], slack: int
) -> None:
    """For any steps, gaps and residual."""
    found = Journal(0)
    rows = [[index, 0, 0, 1, *wall] for index, wall in enumerate(walls)]
    found.begin(RecordFile(parts=(), rank=0, attempt=0, info=make_info()))
    found.add(StepBlock.from_rows(StepBlock.from_records([]).schema, rows))
    for gap, duration in gaps:
        found.add(make_gap(gap, duration / MS))
    found.close()
    found.fit_ns += slack

    total_ns = sum(round(spent_s * 1e9) for spent_s in found.ledger_s().values())
    assert total_ns == found.fit_ns


def test_a_running_fit_lasts_up_to_its_last_line(tmp_path: Path) -> None:
    """Ten steps of 100 ms after 200 ms of start-up: 1.2 s so far, all attributed."""
    steps = [
        make_step(step.index, start_ns=step.start_ns + 200 * MS, forward=100)
        for step in make_steps(10, forward=100)
    ]
    spec = RankSpec(steps=steps, gaps=[make_gap(Gap.STARTUP, 200)], end=None)

    found = journal(tmp_path, [spec])

    assert found.fit_ns == 1200 * MS
    assert found.ledger_s()[UNATTRIBUTED] == 0.0


def test_a_running_fit_shows_time_that_no_line_accounts_for(tmp_path: Path) -> None:
    """A hole of 300 ms between two steps is not hidden by the missing end mark."""
    steps = [make_step(0, forward=100), make_step(1, start_ns=400 * MS, forward=100)]

    assert journal(tmp_path, [RankSpec(steps=steps, end=None)]).ledger_s()[UNATTRIBUTED] == 0.3


def test_the_time_between_two_attempts_is_a_restart(tmp_path: Path) -> None:
    """Cut off after 1 s, started anew 10 s after the beginning: 9 s were lost."""
    later = msgspec.structs.replace(make_info(), started_at="2026-11-01T12:00:10+00:00")
    ranks = [
        RankSpec(steps=make_steps(10, forward=100), info=make_info(), end=None),
        RankSpec(steps=make_steps(5, forward=100), info=later, attempt=1),
    ]

    found = journal(tmp_path, ranks)

    assert found.ledger_s()["restart"] == 9.0
    assert found.fit_ns == 10_500 * MS
    assert found.ledger_s()[UNATTRIBUTED] == 0.0


@pytest.mark.parametrize("started_at", ["2026-11-01T12:00:00.5Z", "", "yesterday"])
def test_clocks_that_disagree_make_no_restart(tmp_path: Path, started_at: str) -> None:
    """An anchor before the first attempt's end, or none, says nothing."""
    later = msgspec.structs.replace(make_info(), started_at=started_at)
    ranks = [
        RankSpec(steps=make_steps(10, forward=100), info=make_info(), end=None),
        RankSpec(steps=make_steps(5, forward=100), info=later, attempt=1),
    ]

    found = journal(tmp_path, ranks)

    assert "restart" not in found.ledger_s()
    assert found.fit_ns == 1500 * MS


def test_a_gap_of_a_later_release_is_still_time_of_the_fit(tmp_path: Path) -> None:
    """It is listed under the name it came with."""
    spec = RankSpec(
        steps=make_steps(1, forward=100),
        gaps=[msgspec.structs.replace(make_gap(Gap.VALIDATION, 50), gap="evaluation")],
    )

    assert journal(tmp_path, [spec]).ledger_s()["evaluation"] == 0.05


def test_phases_come_first_and_what_is_left_over_last(tmp_path: Path) -> None:
    """The order reports print."""
    spec = RankSpec(steps=make_steps(1, forward=1), gaps=[make_gap(Gap.SHUTDOWN, 1)])

    names = list(journal(tmp_path, [spec]).ledger_s())

    assert names == [*(phase.label for phase in PHASES), "shutdown", UNATTRIBUTED]


def test_the_helper_writes_what_a_fit_would(tmp_path: Path) -> None:
    """One header, then steps, then the rest, each on a line of its own."""
    lines = encode_rank(RankSpec(steps=make_steps(2, forward=1))).splitlines()

    assert [line[:1] for line in lines] == [b"{", b"[", b"[", b"{"]


def test_a_hole_before_the_last_gap_of_a_running_fit_shows(tmp_path: Path) -> None:
    """Step up to 100 ms, validation from 300 to 400 ms: 200 ms are in no line."""
    spec = RankSpec(
        steps=[make_step(0, forward=100)],
        gaps=[make_gap(Gap.VALIDATION, 100, start_ns=300 * MS)],
        end=None,
    )

    found = journal(tmp_path, [spec])

    assert found.fit_ns == 400 * MS
    assert found.ledger_s()[UNATTRIBUTED] == 0.2
