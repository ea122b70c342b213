"""Restarts in the first lines of a report, however much else is said there."""

from pathlib import Path

from msgspec.structs import replace
from support.runs import RankSpec, make_steps, summary_of

from trainperf.analysis.summary.schema import Restarts
from trainperf.reports.run.text import WIDTH, render


def test_restarts_are_not_cut_off_where_a_run_was_killed(tmp_path: Path) -> None:
    """The end of a long line is what was lost."""
    spec = RankSpec(steps=make_steps(100, forward=10), end=None)
    summary = summary_of(tmp_path, [spec])
    restarts = Restarts(lost_s=2460.0, again_steps=1200)
    excluded = {"warmup": 47, "first_in_epoch": 6, "after_validation": 12}
    killed = replace(summary.run, state="killed", attempts=4, started_at="2026-11-01T12:00:00Z")

    shown = render(replace(summary, run=killed, excluded=excluded, restarts=restarts))

    first = " ".join(shown.partition("\n\n")[0].split())
    assert "ended without saying so (killed?)" in first
    assert "3 restarts, 41.0 min lost; 1,200 steps done twice" in first
    assert "…" not in first
    assert max(map(len, shown.splitlines())) <= WIDTH
