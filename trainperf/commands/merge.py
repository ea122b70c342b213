"""`trainperf merge DIR…`: one run from the directories that ranks wrote on their machines."""

import argparse
import sys

from trainperf.commands._options import location
from trainperf.commands.cli import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts",
        metavar="DIR",
        nargs="+",
        type=location,
        help="run directory from one machine, by path or URL",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=location,
        required=True,
        help="run directory to make, by path or URL (required)",
    )


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.run.joining import merge
    from trainperf.analysis.summarize import save_summary
    from trainperf.reports.run.page import load_page_data, save
    from trainperf.reports.run.text import rendered

    run = merge([Run.open(part) for part in given.parts], given.out)
    data = load_page_data(run)
    save_summary(data.summary, run.path)
    save(data, run.path)
    return f"{rendered(data.summary, sys.stdout)}\n  {run.path}\n"


COMMAND = Command(
    name="merge",
    about="Make one run of the directories that ranks wrote on machines without shared storage.",
    examples=("machine0 machine1 --out runs/job", "s3://bucket/runs/a --out runs/a"),
    add_arguments=_add_arguments,
    run=_run,
)
