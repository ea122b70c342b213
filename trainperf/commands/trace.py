"""`trainperf trace PATH…`: the analysis of profiler traces."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command
from trainperf.reports import NAMES


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="trace file (.json, .json.gz), or a directory with one per rank",
    )
    parser.add_argument("--format", choices=NAMES, default="text", help="output format")
    parser.add_argument(
        "--hta", action="store_true", help="add the metrics by the definitions of HTA, to compare"
    )
    parser.add_argument(
        "--lanes",
        action="store_true",
        help="with --format json: add the lanes for drawing a timeline",
    )


def _run(given: argparse.Namespace) -> str:
    from trainperf.traces.job_report import report
    from trainperf.traces.results import AnalysisOptions

    job = report(given.paths, AnalysisOptions(lanes=given.lanes, hta=given.hta))
    if given.format == "json":
        from trainperf.reports.layout.json import trace_json

        return trace_json(job)
    if given.format == "markdown":
        from trainperf.reports.trace.view import trace_markdown

        return trace_markdown(job)
    from trainperf.reports.trace.view import trace_text

    return trace_text(job)


COMMAND = Command(
    name="trace",
    about="Show what the device did in profiled steps and what it waited for; one rank or all.",
    add_arguments=_add_arguments,
    run=_run,
)
