"""The page of a run, `report.html`: its document with all charts."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import examine, save_summary
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.html.markup import page
from trainperf.core.formatting.units import plural, step_range
from trainperf.core.paths import AnyPath
from trainperf.core.run_directory import REPORT, write_atomically
from trainperf.reports.capture.document import capture_document
from trainperf.reports.charts.columns import Groups, SeriesFold
from trainperf.reports.charts.machine import MachineTracks
from trainperf.reports.charts.over_time import over_time
from trainperf.reports.charts.series import PLACES, charts_at
from trainperf.reports.layout.document import Heading, Part, items, not_measured
from trainperf.reports.layout.html import as_html
from trainperf.reports.run.document import run_document
from trainperf.reports.run.rows import no_trace
from trainperf.traces.capture_files import CaptureReport


MOST_GROUPS = 256
"""One in three pixels: the page of a run of any length has less than a megabyte."""

LATEST = 3
"""Traces that are shown in full."""

MOST_RANKS = 8
"""Ranks of a capture that are shown in detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """A run that was read once, for its page."""

    summary: Summary
    captures: Sequence[CaptureReport] | None
    """`None` where they are shown elsewhere."""
    groups: Groups


def load_page_data(run: Run, *, now_s: float | None = None) -> PageData:
    """Read a run once, in constant memory; *now_s* as for `examine`."""
    replay = Replay(run)
    fold = SeriesFold(most=MOST_GROUPS, beside=MachineTracks(replay).columns)
    evidence = examine(run, now_s=now_s, replay=replay, observers=(fold.observe,))
    return PageData(summary=evidence.summary, captures=evidence.captures, groups=fold.groups)


def render(data: PageData) -> str:
    """The whole page.  Every name that came from a user is escaped."""
    return page(f"{data.summary.run.name} · trainperf", as_html(page_document(data)))


def save(data: PageData, run: AnyPath) -> None:
    """Write the page into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / REPORT, render(data).encode("utf-8"))


def save_reports(run: Run) -> Summary:
    """Read a run, write its summary and its page into its directory, and return the summary.

    Raises:
        OSError: The directory cannot be written.
    """
    data = load_page_data(run)
    save_summary(data.summary, run.path)
    save(data, run.path)
    return data.summary


def page_document(data: PageData) -> list[Part]:
    """The document of a run, with the charts of the steps that were read."""
    summary, groups = data.summary, data.groups
    charts: dict[str, Sequence[Part]] = {
        "steps": over_time(groups) or items(["not measured: no step was recorded"], "soft"),
        "captures": _captures(summary, data.captures),
        **{place: charts_at(place, groups, summary) for place in PLACES},
    }
    return run_document(summary, charts)


def _captures(summary: Summary, reports: Sequence[CaptureReport] | None) -> list[Part]:
    """The latest traces in full, or why there is none."""
    if reports is None:
        return []
    if not reports:
        why = "no trace was read" if "profiled" in summary.excluded else no_trace(summary)
        return items([not_measured(why)], "soft")
    note = f"{plural(len(reports), 'trace')} in all; earlier ones: trainperf trace, or the tab"
    parts = items([note] if len(reports) > LATEST else [], "soft")
    for report in reports[-LATEST:]:
        first, steps = report.capture.first_index, report.capture.complete_steps
        heading = step_range(first, first + max(steps, 1) - 1).capitalize()
        parts += [Heading(heading, 3), *capture_document(report, MOST_RANKS)[1:]]
    return parts
