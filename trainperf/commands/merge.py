"""`trainperf merge DIR…`: one run from the directories that ranks wrote on their machines."""

import argparse
import sys

from trainperf.commands._options import location
from trainperf.commands.cli import Command, argument


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.run.joining import merge
    from trainperf.reports.run.page import save_reports
    from trainperf.reports.run.text import rendered

    run = merge([Run.open(part) for part in given.parts], given.out)
    return f"{rendered(save_reports(run), sys.stdout)}\n  {run.path}\n"


COMMAND = Command(
    name="merge",
    about="Make one run of the directories that ranks wrote on machines without shared storage.",
    examples=("machine0 machine1 --out runs/job", "s3://bucket/runs/a --out runs/a"),
    arguments=(
        argument(
            "parts",
            metavar="DIR",
            nargs="+",
            type=location,
            help="run directory from one machine, by path or URL",
        ),
        argument(
            "--out",
            metavar="DIR",
            type=location,
            required=True,
            help="run directory to make, by path or URL (required)",
        ),
    ),
    run=_run,
)
