"""A capture in words: the answer first, what to change last."""

from collections.abc import Sequence

from trainperf.core.formatting.units import plural, step_range
from trainperf.reports.capture.memory import memory_chart
from trainperf.reports.capture.rows import missing_figures, rows
from trainperf.reports.capture.tables import job_tables, rank_tables
from trainperf.reports.layout.document import Heading, Part, Sentence, items, missing
from trainperf.reports.layout.finding_view import NO_FINDING, finding_view
from trainperf.traces.results import RankTrace, TraceReport


def capture_document(report: TraceReport, most_ranks: int = 1) -> list[Part]:
    """What was read of a trace, or of the traces of all ranks; some ranks in detail."""
    parts: list[Part] = [Heading(f"trainperf trace · {about(report.ranks)}", 1)]
    parts += [Sentence(text=report.answer, kind="answer"), *job_tables(report)]
    for rank in report.ranks[:most_ranks]:
        if len(report.ranks) > 1:
            parts.append(Heading(f"in detail: {about([rank])}", 3))
        parts += [rows(rank), *missing(missing_figures(rank))]
        parts += [*map(memory_chart, rank.memory), *rank_tables(rank)]
    more = len(report.ranks) - most_ranks
    if more > 0 and most_ranks > 1:
        parts += items([f"{plural(more, 'more rank')} with: trainperf trace --format json"], "soft")
    parts += items(report.warnings, "warn", "note")
    nothing = [] if report.findings else items([NO_FINDING], "")
    return [*parts, *map(finding_view, report.findings), *nothing]


def about(ranks: Sequence[RankTrace]) -> str:
    """The file or the number of traces, the rank, the device, the steps."""
    if not ranks:
        return "no trace"
    first, several = ranks[0], len(ranks) > 1
    number = "" if first.rank is None or several else f"rank {first.rank}"
    device = first.device or ("GPU" if first.device_worked else "no device")
    numbers = sorted({step.step for rank in ranks for step in rank.steps})
    steps = plural(len(numbers), "step")
    if first.step_source == "ProfilerStep" and numbers:
        steps += f" ({step_range(numbers[0], numbers[-1]).split(maxsplit=1)[1]})"
    what = plural(len(ranks), "trace") if several else first.file
    return " · ".join(filter(None, (what, number, device, steps)))
