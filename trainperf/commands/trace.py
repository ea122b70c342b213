"""`trainperf trace PATH…`: what the profiler's traces say."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command
from trainperf.reports import NAMES


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="trace (.json, .json.gz), or a directory with one per rank",
    )
    parser.add_argument("--format", choices=NAMES, default="text", help="how to show it")
    parser.add_argument(
        "--hta", action="store_true", help="add the figures by HTA's definitions, to compare"
    )
    parser.add_argument(
        "--lanes", action="store_true", help="with --format json: the lanes for drawing, too"
    )


def _run(given: argparse.Namespace) -> str:
    from trainperf.traces.job_report import Wanted, report

    said = report(given.paths, Wanted(lanes=given.lanes, hta=given.hta))
    if given.format == "json":
        from trainperf.reports.layout.json import trace_json

        return trace_json(said)
    if given.format == "markdown":
        from trainperf.reports.trace import markdown as trace_markdown

        return trace_markdown.render(said)
    from trainperf.reports.trace import text as trace_text

    return trace_text.render(said)


TRACE = Command(
    name="trace",
    about="Say what the device did in recorded steps, and what it waited for; of one rank or all.",
    declare=_declare,
    run=_run,
)
