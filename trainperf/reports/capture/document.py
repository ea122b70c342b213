"""A capture in words: the answer first, what to change last."""

from collections.abc import Sequence

from trainperf.core.formatting.units import plural, step_range
from trainperf.reports.capture.rows import missing_figures, rows
from trainperf.reports.capture.tables import job_tables, rank_tables
from trainperf.reports.layout.document import Heading, Part, Sentence, labelled, missing
from trainperf.reports.layout.finding_view import NO_FINDING, finding_view
from trainperf.traces.results import RankTrace, TraceReport


def capture_document(report: TraceReport, most_ranks: int = 1) -> list[Part]:
    """What was read of a trace, or of the traces of all ranks; some ranks in detail."""
    parts: list[Part] = [Heading(f"trainperf trace · {about(report.ranks)}", 1)]
    parts += [Sentence(text=report.answer, kind="answer"), *job_tables(report)]
    for rank in report.ranks[:most_ranks]:
        parts += rank_parts(rank, named=len(report.ranks) > 1)
    more = len(report.ranks) - most_ranks
    if more > 0 and most_ranks > 1:
        note = f"{plural(more, 'more rank')} with: trainperf trace --format json"
        parts.append(Sentence(text=note, kind="soft"))
    parts += labelled("note", report.warnings, "warn")
    parts += map(finding_view, report.findings)
    return parts if report.findings else [*parts, Sentence(text=NO_FINDING)]


def rank_parts(rank: RankTrace, *, named: bool) -> list[Part]:
    """Where its mean step goes, what is not known of that, and its tables."""
    name = [Heading(f"in detail: {about([rank])}", 3)] if named else []
    return [*name, rows(rank), *missing(missing_figures(rank)), *rank_tables(rank)]


def about(ranks: Sequence[RankTrace]) -> str:
    """The file or the number of traces, the rank, the device, the steps."""
    if not ranks:
        return "no trace"
    first = ranks[0]
    what, number = first.file, "" if first.rank is None else f"rank {first.rank}"
    if len(ranks) > 1:
        what, number = plural(len(ranks), "trace"), ""
    device = first.device or ("GPU" if first.device_worked else "no device")
    numbers = sorted({step.step for rank in ranks for step in rank.steps})
    steps = plural(len(numbers), "step")
    if first.step_source == "ProfilerStep" and numbers:
        steps += f" ({step_range(numbers[0], numbers[-1]).split(maxsplit=1)[1]})"
    return " · ".join(part for part in (what, number, device, steps) if part)
