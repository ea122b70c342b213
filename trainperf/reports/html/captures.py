"""The captures of a run on its page: their traces, and whether the records agree."""

from collections.abc import Sequence

from trainperf.analysis.summary.captures import steps_of
from trainperf.analysis.summary.schema import Summary, TracedSteps
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.units import duration, plural, step_range
from trainperf.reports.html.components import finding_card, heading, missing, not_measured, shown
from trainperf.reports.run.rows import no_trace
from trainperf.reports.trace.tables import rows_table
from trainperf.reports.trace.view import RankView, trace_view
from trainperf.traces.capture_files import CaptureReport


_LATEST = 3
"""Traces that are shown in full."""

_MOST_RANKS = 8
"""Ranks of a capture that are shown in detail."""


def captures(summary: Summary, reports: Sequence[CaptureReport]) -> Markup:
    """All captures of a run, the latest traces in full."""
    if not reports:
        profiled = "profiled" in summary.excluded
        return not_measured("no trace was read" if profiled else no_trace(summary))
    parts = [_agreement(summary.traces)]
    earlier = len(reports) - _LATEST
    if earlier > 0:
        note = f"{plural(earlier, 'earlier trace')}: see trainperf trace, or the tab"
        parts.append(paragraph(note, "soft small"))
    parts += [capture_section(report) for report in reports[-_LATEST:]]
    return Markup("".join(parts))


def _agreement(traces: Sequence[TracedSteps]) -> Markup:
    rows = [
        (
            f"{steps_of(each)}, rank {each.rank}",
            duration(each.recorded_s),
            duration(each.traced_s),
            "agree" if each.agree else "disagree",
        )
        for each in traces
        if each.recorded_s and each.traced_s
    ]
    if not rows:
        return Markup("")
    head = ("trace of", "step in the records", "in the trace", "\u00a0")
    return Markup(heading("The same steps, measured twice") + table(head, rows, words=(0, 3)))


def capture_section(report: CaptureReport) -> Markup:
    """One capture: its answer, its findings, and its first ranks in detail."""
    view = trace_view(report)
    first = report.capture.first_index
    steps = step_range(first, first + max(report.capture.complete_steps, 1) - 1)
    more = len(view.ranks) - _MOST_RANKS
    note = f"{plural(more, 'more rank')} with: trainperf trace --format json" if more > 0 else ""
    return Markup(
        heading(steps.capitalize())
        + tag("p", tag("b", text(view.answer)))
        + bullets(view.warnings)
        + "".join(map(finding_card, view.findings))
        + "".join(map(shown, view.tables))
        + "".join(map(_rank, view.ranks[:_MOST_RANKS]))
        + (paragraph(note, "soft small") if note else "")
    )


def _rank(rank: RankView) -> Markup:
    reasons = [(name, group.reason) for group in rank.missing for name in group.names]
    return Markup(
        paragraph(rank.about, "soft small")
        + "".join(map(shown, (rows_table(rank.rows), *rank.tables)))
        + missing(reasons)
    )
