"""`trainperf report RUN`: the report of a run, from its directory."""

import argparse
import sys
from pathlib import Path

from trainperf.commands.cli import Command
from trainperf.reports import PAGES


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="run directory, or a directory above it"
    )
    parser.add_argument("--format", choices=PAGES, default="text", help="output format")
    parser.add_argument(
        "--full",
        action="store_true",
        help="with text: print every section; the other formats always have them",
    )


def _run(given: argparse.Namespace) -> str:
    from datetime import datetime, timezone

    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.summarize import summarize
    from trainperf.reports.run.formats import FORMATS, rendered

    now_s = datetime.now(tz=timezone.utc).timestamp()
    if given.format == "html":
        from trainperf.core.formatting.html.markup import portable
        from trainperf.reports.html.run import load_page_data, render

        return portable(render(load_page_data(Run.open(given.run), now_s=now_s)))
    summary = summarize(Run.open(given.run), now_s=now_s)
    if given.format == "text":
        return rendered(summary, sys.stdout, full=given.full)
    return FORMATS[given.format](summary)


COMMAND = Command(
    name="report",
    about="Show where a run's time went and what to change first; works while it is training.",
    add_arguments=_add_arguments,
    run=_run,
)
