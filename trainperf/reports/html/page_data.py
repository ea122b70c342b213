"""What does the page of a run stand on?  Its evidence, and its steps as they are drawn."""

from dataclasses import dataclass

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.reports.series.fold import SeriesFold
from trainperf.reports.series.step_times import WallsFold
from trainperf.reports.series.steps import Series, series


MOST_GROUPS = 256
"""One in three pixels: the page of a run of any length has less than a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run that was read once, for its page."""

    evidence: Evidence
    series: Series
    walls: WallsFold


def look(run: Run, *, now_s: float | None = None) -> Seen:
    """Read a run once, in constant memory; *now_s* as for `examine`."""
    drawn, walls = SeriesFold(most=MOST_GROUPS), WallsFold()
    evidence = examine(run, now_s=now_s, observers=(drawn, walls))
    found = series(drawn.groups, evidence.summary, None)
    return Seen(evidence=evidence, series=found, walls=walls)
