"""Lines of trainperf's own output, as a case shows them before its change."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.benchmark import BenchmarkComparison, StepBenchmark
from trainperf.core.errors import SmokeFailure
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.wrap import WIDTH, paragraphs
from trainperf.reports.layout.finding_view import finding_view
from trainperf.reports.layout.text import finding_lines as lines_of
from trainperf.reports.run.document import run_document
from trainperf.reports.run.text import render


_PACKAGES = re.compile(r"/\S*?/site-packages/")


BENCHMARK = "no finding is about this; `trainperf.benchmark` decides it:"
"""Note of a case whose lines are those of a benchmark."""


class Before(TypedDict):
    """The fields of a `Case` that show what trainperf says before the change."""

    before: tuple[str, ...]
    before_note: str


def before(run: Path, *names: str) -> Before:
    """`Case(**before(run, "layout_copies"), …)`: what the report of a run says of these findings.

    Where it has none of them, a note says so above its first lines.
    """
    lines = _findings(run, names)
    if lines:
        return Before(before=lines, before_note="")
    named = " or ".join(f"`{name}`" for name in names)
    return Before(
        before=report_lines(run)[:8],
        before_note=f"no finding {named} here, and the measurement below decides; the report "
        "begins:",
    )


def failure_lines(assertion: Callable[..., None], *given: object) -> tuple[str, ...]:
    """What an assertion of `trainperf.smoke` says where it fails; nothing where it passes."""
    try:
        assertion(*given)
    except SmokeFailure as failure:
        return tuple(str(failure).splitlines())
    return ()


def finding_lines(run: Path, names: Sequence[str]) -> tuple[str, ...]:
    """What the full report says of these findings, by id, in the report's own words.

    Where the report has none of them: its first lines, which say what it had instead.
    """
    return _findings(run, names) or report_lines(run)[:8]


def _findings(run: Path, names: Sequence[str]) -> tuple[str, ...]:
    summary = summarize(Run.open(run))
    lines: list[str] = []
    for finding in summary.findings:
        if finding.id in names:
            lines += [line.plain for line in lines_of(1, finding_view(finding), WIDTH - 4)]
    return tuple(map(_portable, lines))


def finding_ids(run: Path) -> tuple[str, ...]:
    """Findings of a run, the first first."""
    return tuple(finding.id for finding in summarize(Run.open(run)).findings)


def report_lines(run: Path) -> tuple[str, ...]:
    """The report of a run as `trainperf report` prints it, without empty lines."""
    return tuple(line for line in render(summarize(Run.open(run))).splitlines() if line.strip())


def table_lines(run: Path, title: str) -> tuple[str, ...]:
    """The tables of the full report whose title begins so."""
    lines: list[str] = []
    for table in run_document(summarize(Run.open(run))):
        if isinstance(table, Table) and table.title.startswith(title):
            lines += [table.title, *text_table(table, WIDTH - 4)]
            lines += paragraphs(table.notes, WIDTH - 4)
    return tuple(lines)


def benchmark_lines(benchmark: StepBenchmark | BenchmarkComparison) -> tuple[str, ...]:
    """One function, or several against a baseline, as `trainperf.benchmark` prints them."""
    return tuple(str(benchmark).splitlines())


def _portable(line: str) -> str:
    """Packages by their names alone: where they are installed differs from machine to machine."""
    return _PACKAGES.sub("", line)
