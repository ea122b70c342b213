"""`trainperf report RUN`: the answer, from disk."""

import argparse
import sys
from pathlib import Path

from trainperf.commands.entry import Command
from trainperf.reports import PAGES


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="run directory, or one above it")
    parser.add_argument("--format", choices=PAGES, default="text", help="how to show it")
    parser.add_argument(
        "--full",
        action="store_true",
        help="with text: everything that is known beyond the answer; the other formats have it all",
    )


def _run(given: argparse.Namespace) -> str:
    from datetime import datetime, timezone

    from trainperf.reports.formats import FORMATS
    from trainperf.reports.terminal import rendered
    from trainperf.run import Run
    from trainperf.summary import summarize

    now_s = datetime.now(tz=timezone.utc).timestamp()
    if given.format == "html":
        from trainperf.pages.markup import portable
        from trainperf.reports.html.run import render
        from trainperf.reports.html.seen import look

        return portable(render(look(Run.open(given.run), now_s=now_s)))
    summary = summarize(Run.open(given.run), now_s=now_s)
    if given.format == "text":
        return rendered(summary, sys.stdout, full=given.full)
    return FORMATS[given.format](summary)


REPORT = Command(
    name="report",
    about="Say where the time of a run went and what to change first; also while it is running.",
    declare=_declare,
    run=_run,
)
