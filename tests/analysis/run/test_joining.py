"""Directories that one job wrote, one after each restart, are read as one run."""

from pathlib import Path

import msgspec
import pytest
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.joining import joined
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import RunError
from trainperf.core.phases import Gap
from trainperf.core.window import RunWindow
from trainperf.reports.run.rows import progress


STEP_MS = 100


def attempt(folder: Path, minute: int, steps: int, begins: int | None, parameters: int = 7) -> Run:
    """A directory of a fit that began so many minutes after noon, at a step of the job."""
    info = msgspec.structs.replace(
        make_info(config={"parameters": parameters}),
        started_at=f"2026-11-01T12:{minute:02d}:00+00:00",
        totals={} if begins is None else {"steps": begins},
    )
    spec = RankSpec(
        steps=make_steps(steps, forward=40, backward=60),
        gaps=[make_gap(Gap.STARTUP, 6_000)],
        info=info,
        end=None,
        fit_ns=steps * STEP_MS * MS,
    )
    return Run.open(make_run_dir(folder / f"at-{minute}" / "trainperf", [spec]))


def job(folder: Path) -> list[Run]:
    """Killed at step 6,000, gone on from 5,000, killed at 8,000, gone on from 7,800."""
    return [
        attempt(folder, 0, 6_000, None),
        attempt(folder, 20, 3_000, 5_000),
        attempt(folder, 30, 1_000, 7_800),
    ]


def test_restarts_are_one_run_with_its_gaps(tmp_path: Path) -> None:
    """Given in any order: ten minutes, and five, without training; 1,200 steps done twice."""
    runs = job(tmp_path)
    run = joined([runs[2], runs[0], runs[1]])
    summary = summarize(run)

    assert (summary.run.attempts, summary.restarts.again_steps) == (3, 1_200)
    assert summary.gaps["restart"] == 2
    # Minutes 0 to 20 less 600 s of steps, and 20 to 30 less 300 s.
    assert summary.ledger_s["restart"] == pytest.approx(600 + 300, abs=15)
    assert summary.restarts.lost_s == pytest.approx(900 + 2 * 6 + 120, abs=15)
    assert summary.run.steps == 10_000
    assert sum(summary.ledger_s.values()) == pytest.approx(summary.run.fit_s)
    assert "2 restarts, 17.0 min lost; 1,200 steps done twice" in progress(summary)


def test_a_window_reaches_over_a_restart(tmp_path: Path) -> None:
    """Steps go on being numbered in the next directory."""
    run = joined(job(tmp_path), RunWindow(first=5_990, last=6_009))
    read = [int(step) for blocks in Replay(run).blocks() for step in blocks[0].index]
    assert read == list(range(5_990, 6_010))


def test_where_an_attempt_does_not_say_where_it_went_on_nothing_is_made_up(tmp_path: Path) -> None:
    """A restart from no checkpoint of ours."""
    runs = [attempt(tmp_path, 0, 600, None), attempt(tmp_path, 5, 600, None)]
    summary = summarize(joined(runs))
    assert summary.restarts.again_steps is None
    assert "done twice" not in progress(summary)


def test_strangers_are_not_joined(tmp_path: Path) -> None:
    """Another model, or one directory twice."""
    first = attempt(tmp_path, 0, 100, None)
    with pytest.raises(RunError, match="another model than in"):
        joined([first, attempt(tmp_path, 5, 100, None, parameters=8)])
    with pytest.raises(RunError, match="given twice"):
        joined([first, first])
