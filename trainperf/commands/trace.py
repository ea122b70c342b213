"""`trainperf trace PATH…`: the analysis of profiler traces."""

import argparse
import sys
from typing import TYPE_CHECKING

from trainperf.commands._options import ENGINE, format_argument, location, steps_argument
from trainperf.commands.cli import Command, argument
from trainperf.reports import PAGES


if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainperf.reports.layout.document import Part
    from trainperf.traces.results import AnalysisOptions


def _run(given: argparse.Namespace) -> str:
    from trainperf.reports.layout.forms import as_json, rendered
    from trainperf.traces.results import AnalysisOptions

    options = AnalysisOptions(lanes=given.lanes, steps=given.steps or (None, None))
    data, documents = (_differences if given.before else _captures)(given, options)
    if given.format == "json":
        return as_json(data)
    if given.format == "html":
        from trainperf.core.formatting.html.markup import page, portable
        from trainperf.reports.layout.html import as_html

        return portable(
            page("trainperf trace", as_html([part for each in documents for part in each]))
        )
    return "\n".join(rendered(each, None, given.format, sys.stdout) for each in documents)


def _captures(
    given: argparse.Namespace, options: "AnalysisOptions"
) -> tuple[object, list["Sequence[Part]"]]:
    from trainperf.analysis.diagnosis.of_capture import diagnosed
    from trainperf.reports.capture.document import capture_document
    from trainperf.traces.job_report import reports

    jobs = tuple(map(diagnosed, reports(given.paths, options, given.engine)))
    return jobs[0] if len(jobs) == 1 else jobs, [*map(capture_document, jobs)]


def _differences(
    given: argparse.Namespace, options: "AnalysisOptions"
) -> tuple[object, list["Sequence[Part]"]]:
    from trainperf.comparison.trace_differences import compared_ranks, rank_differences
    from trainperf.core.errors import TraceError
    from trainperf.reports.capture.differences import differences_document
    from trainperf.traces.job_report import report

    sides = [report(paths, options, given.engine) for paths in ([given.before], given.paths)]
    pair = compared_ranks(sides[:1], sides[1:])
    if pair is None:
        raise TraceError("no step to compare in one of the traces")
    differences = rank_differences(*pair)
    return differences, [differences_document(*pair, differences)]


COMMAND = Command(
    name="trace",
    about="Show what the device did in profiled steps and what it waited for; one rank or all.",
    examples=(
        "trace.json.gz",
        "runs/a/traces",
        "after.json.gz --before before.json.gz",
        "traces --format json --engine local:4",
    ),
    arguments=(
        argument(
            "paths",
            metavar="PATH",
            nargs="+",
            type=location,
            help="trace file (.json, .json.gz), or a directory with one per rank, by path or URL;"
            " each job is reported on its own",
        ),
        format_argument(PAGES),
        argument(
            "--before",
            metavar="PATH",
            type=location,
            help="compare with this trace, or directory of traces: times, operators and kernels "
            "of a step, before and after, by the size of the change (default: no comparison)",
        ),
        argument(
            "--lanes",
            action="store_true",
            help="with --format json: add the lanes of a timeline, for those who draw one",
        ),
        steps_argument(
            "of a directory, the last capture that begins with one of these steps",
            "the last capture",
        ),
        ENGINE,
    ),
    run=_run,
)
