"""The page of a run, `report.html`: its document with all charts."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import plural, step_range
from trainperf.core.paths import AnyPath
from trainperf.core.readings import STEP_S
from trainperf.core.run_directory import REPORT, write_atomically
from trainperf.meters.fold import not_covered
from trainperf.reports.capture.document import capture_document
from trainperf.reports.charts.columns import Groups, SeriesFold
from trainperf.reports.charts.machine import MACHINE_KEYS, MachineTracks, machine_charts
from trainperf.reports.charts.over_time import over_time
from trainperf.reports.charts.small import charts_of, small_charts
from trainperf.reports.charts.step_times import WallsFold, histogram
from trainperf.reports.layout.document import Heading, Part, Sentence, items, not_measured
from trainperf.reports.layout.html import as_page
from trainperf.reports.run.document import RunCharts, run_document
from trainperf.reports.run.rows import excluded, no_trace
from trainperf.traces.capture_files import CaptureReport


MOST_GROUPS = 256
"""One in three pixels: the page of a run of any length has less than a megabyte."""

LATEST = 3
"""Traces that are shown in full."""

MOST_RANKS = 8
"""Ranks of a capture that are shown in detail."""

_OF_RANKS = frozenset({"tail", "skew"})
_OF_MEMORY = frozenset({"memory"})
_ELSEWHERE = _OF_RANKS | _OF_MEMORY | MACHINE_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """A run that was read once, for its page."""

    summary: Summary
    captures: Sequence[CaptureReport] | None
    """`None` where they are shown elsewhere."""
    groups: Groups
    walls: WallsFold


def load_page_data(run: Run, *, now_s: float | None = None) -> PageData:
    """Read a run once, in constant memory; *now_s* as for `examine`."""
    replay, walls = Replay(run), WallsFold()
    fold = SeriesFold(most=MOST_GROUPS, beside=MachineTracks(replay).columns)
    evidence = examine(run, now_s=now_s, replay=replay, observers=(fold, walls))
    return PageData(
        summary=evidence.summary, captures=evidence.captures, groups=fold.groups, walls=walls
    )


def render(data: PageData) -> str:
    """The whole page.  Every name that came from a user is escaped."""
    return as_page(f"{data.summary.run.name} · trainperf", page_document(data))


def save(data: PageData, run: AnyPath) -> None:
    """Write the page into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / REPORT, render(data).encode("utf-8"))


def page_document(data: PageData) -> list[Part]:
    """The document of a run, with the charts of the steps that were read."""
    summary = data.summary
    charts = [*charts_of(data.groups, summary), *machine_charts(data.groups, summary)]
    every = frozenset(chart.key for chart in charts)

    def drawn(keys: frozenset[str]) -> list[Part]:
        if not len(data.groups.begins()):
            return []
        return small_charts([chart for chart in charts if chart.key in keys], data.groups)

    alone = summary.run.world_size == 1
    return run_document(
        summary,
        RunCharts(
            steps=_steps(data),
            others=drawn(every - _ELSEWHERE),
            ranks=[] if alone else drawn(_OF_RANKS),
            memory=drawn(_OF_MEMORY),
            machine=drawn(MACHINE_KEYS),
            captures=_captures(summary, data.captures),
        ),
    )


def _steps(data: PageData) -> list[Part]:
    phases = over_time(data.groups)
    if not phases:
        return items(["not measured: no step was recorded"], "soft")
    why = excluded(data.summary)
    above = f"The rows above the bars are {why}." if why else ""
    single = data.summary.reading(STEP_S)
    if single is not None and not_covered(single):
        above = single.reason or ""
    distribution = Heading("Distribution", 3)
    return [*phases, distribution, *histogram(data.walls), *items([above], "soft")]


def _captures(summary: Summary, reports: Sequence[CaptureReport] | None) -> list[Part]:
    """The latest traces in full, or why there is none."""
    if not reports:
        why = "no trace was read" if "profiled" in summary.excluded else no_trace(summary)
        return [] if reports is None else items([not_measured(why)], "soft")
    earlier = len(reports) - LATEST
    parts: list[Part] = []
    if earlier > 0:
        note = f"{plural(earlier, 'earlier trace')}: see trainperf trace, or the tab"
        parts.append(Sentence(text=note, kind="soft"))
    for report in reports[-LATEST:]:
        first = report.capture.first_index
        steps = step_range(first, first + max(report.capture.complete_steps, 1) - 1)
        _, *content = capture_document(report, MOST_RANKS)
        parts += [Heading(steps.capitalize(), 3), *content]
    return parts
