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
        help="trace file (.json, .json.gz), or a directory with one per rank; each job is reported "
        "on its own",
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
    from trainperf.traces.job_report import reports
    from trainperf.traces.results import AnalysisOptions

    jobs = reports(given.paths, AnalysisOptions(lanes=given.lanes, hta=given.hta))
    if given.format == "json":
        from trainperf.reports.layout.json import trace_json

        return trace_json(jobs)
    if given.format == "markdown":
        from trainperf.reports.trace.view import trace_markdown

        return "\n".join(map(trace_markdown, jobs))
    from trainperf.reports.trace.view import trace_text

    return "\n".join(map(trace_text, jobs))


COMMAND = Command(
    name="trace",
    about="Show what the device did in profiled steps and what it waited for; one rank or all.",
    add_arguments=_add_arguments,
    run=_run,
)
