"""What did the captures show?  Each trace: its answer, its figures, and if the records agree."""

from collections.abc import Sequence

from trainperf.analysis.summary.schema import CaptureAftermath, Summary, TracedSteps
from trainperf.analysis.summary.trace_agreement import steps_of
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, tag, text
from trainperf.core.formatting.units import duration, times, words
from trainperf.reports.html.components import facts, heading, missing
from trainperf.reports.trace.tab_words import CaptureWords, RankWords, capture_words
from trainperf.reports.trace.tab_words import Table as Grid
from trainperf.traces.capture_files import CaptureReport


_LATEST = 3
"""Traces that are shown in full."""

_MOST_RANKS = 8
_MOST_ROWS = 10
"""Of a table about one trace: the rest is in `trainperf trace`."""

_WORDS = frozenset({"shapes", "called from", "kernels"})
"""Columns of them that hold no numbers."""

NONE = "ScheduledProfiler makes captures, or a file named capture put into the run directory"


def captures(summary: Summary, reports: Sequence[CaptureReport]) -> Markup:
    """All captures of a run, the latest traces in full."""
    if not summary.captures and not reports:
        return missing([("Trace", NONE)])
    parts = [_stretches(summary.captures), _agreement(summary.traces)]
    if not reports:
        parts.append(missing([("Trace", "no trace of these steps was read")]))
    left_out = len(reports) - _LATEST
    if left_out > 0:
        said = f"{left_out} earlier traces were read too; the latest {_LATEST} are shown."
        parts.append(paragraph(said, "soft small"))
    parts += [_capture(report) for report in reports[-_LATEST:]]
    return Markup("".join(parts))


def _stretches(found: Sequence[CaptureAftermath]) -> Markup:
    """Profiled steps, and whether what followed was as fast as what was before."""
    rows = [
        (
            f"{one.first_step:,} – {one.last_step:,}",
            _time(one.before_s),
            _time(one.after_s),
            "not measured" if one.ratio is None else times(one.ratio),
            "slower since" if one.slower else "",
        )
        for one in found
    ]
    return table(
        ("profiled steps", "step before", "step after", "ratio", "\u00a0"), rows, words=(0, 4)
    )


def _time(seconds: float | None) -> str:
    return "not measured" if seconds is None else duration(seconds)


def _agreement(traces: Sequence[TracedSteps]) -> Markup:
    rows = [
        (
            f"{steps_of(traced)}, rank {traced.rank}",
            words(one.name),
            duration(one.recorded_s),
            duration(one.traced_s),
            "agree" if one.agree else "disagree",
        )
        for traced in traces
        for one in traced.compared
    ]
    if not rows:
        return Markup("")
    head = ("trace of", "what", "by the records", "by the trace", "\u00a0")
    return Markup(heading("The same steps, measured twice") + table(head, rows, words=(0, 1, 4)))


def _capture(report: CaptureReport) -> Markup:
    said = capture_words(report)
    first = report.capture.first_index
    last = first + max(report.capture.complete_steps, 1) - 1
    title = f"Steps {first:,} – {last:,}" if last > first else f"Step {first:,}"
    more = len(said.ranks) - _MOST_RANKS
    note = f"{more} more ranks are in the trace itself" if more > 0 else ""
    return Markup(
        heading(title)
        + tag("p", tag("b", text(said.answer)))
        + bullets(said.warnings)
        + _findings(said)
        + bullets(said.stragglers[:_MOST_ROWS])
        + "".join(map(_rank, said.ranks[:_MOST_RANKS]))
        + (paragraph(note, "soft small") if note else "")
    )


def _findings(said: CaptureWords) -> Markup:
    return Markup(
        "".join(
            tag("div", tag("p", tag("b", text(one.name))), paragraph(one.said), kind="finding")
            for one in said.findings
        )
    )


def _rank(one: RankWords) -> Markup:
    tables = "".join(_grid(grid) for grid in one.tables)
    return Markup(
        paragraph(f"{one.label} · {one.about} · {one.file}", "soft small")
        + bullets(one.warnings)
        + facts((fact.name, fact.said) for fact in one.totals)
        + tables
        + missing([(fact.name, fact.said) for fact in one.absent])
    )


def _grid(grid: Grid) -> Markup:
    rows = grid.rows[:_MOST_ROWS]
    used = [place for place in range(len(grid.head)) if any(row[place] for row in rows)]
    more = len(grid.rows) - _MOST_ROWS
    note = f"{more} more are in the trace itself" if more > 0 else ""
    left = [at for at, place in enumerate(used) if grid.head[place] in _WORDS]
    return Markup(
        heading(grid.title)
        + table(
            [grid.head[place] or "\u00a0" for place in used],
            [[row[place] for place in used] for row in rows],
            words=(0, *left),
        )
        + (paragraph(note, "soft small") if note else "")
    )
