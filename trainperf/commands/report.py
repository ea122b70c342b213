"""`trainperf report RUN`: the report of a run, from its directory."""

import argparse
import sys

from trainperf.commands._options import WINDOW, format_argument, location, window_of
from trainperf.commands.cli import Command, argument
from trainperf.reports import PAGES


def _run(given: argparse.Namespace) -> str:
    from datetime import datetime, timezone

    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.run.joining import joined
    from trainperf.analysis.summarize import summarize

    now_s = datetime.now(tz=timezone.utc).timestamp()
    window = window_of(given)
    runs = [Run.open(path, window if len(given.runs) == 1 else None) for path in given.runs]
    run = runs[0] if len(runs) == 1 else joined(runs, window)
    if given.format == "html":
        from trainperf.core.formatting.html.markup import portable
        from trainperf.reports.run.page import load_page_data, render

        return portable(render(load_page_data(run, now_s=now_s)))
    summary = summarize(run, now_s=now_s)
    if given.format == "text":
        from trainperf.reports.run.text import rendered

        return rendered(summary, sys.stdout, full=given.full)
    from trainperf.reports.layout import forms
    from trainperf.reports.run.document import run_document

    return forms.rendered(run_document(summary), summary, given.format, sys.stdout)


COMMAND = Command(
    name="report",
    about="Show where a run's time went and what to change first; works while it is training.",
    examples=(
        "runs/a",
        "runs/a --full",
        "runs/a --steps 10000:20000",
        "s3://bucket/runs/a --format html > report.html",
    ),
    arguments=(
        argument(
            "runs",
            metavar="RUN",
            nargs="+",
            type=location,
            help="run directory, or a directory above it, by path or URL; several are the "
            "restarts of one job, and are read as one run",
        ),
        format_argument(PAGES),
        argument(
            "--full",
            action="store_true",
            help="with --format text: print every section; the other formats always have them",
        ),
        *WINDOW,
    ),
    run=_run,
)
