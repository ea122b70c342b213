"""`trainperf merge DIR…`: one run from the directories that ranks wrote on their machines."""

import argparse
import sys
from pathlib import Path

from trainperf.commands.cli import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts", metavar="DIR", nargs="+", type=Path, help="run directory from one machine"
    )
    parser.add_argument(
        "--out", metavar="RUN", type=Path, required=True, help="run directory to create"
    )


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.run.merge import merge
    from trainperf.analysis.summarize import save_summary
    from trainperf.reports.html.run import load_page_data, save
    from trainperf.reports.run.formats import rendered

    run = merge([Run.open(part) for part in given.parts], given.out)
    data = load_page_data(run)
    save_summary(data.evidence.summary, run.path)
    save(data, run.path)
    return f"{rendered(data.evidence.summary, sys.stdout)}\n  {run.path}\n"


COMMAND = Command(
    name="merge",
    about="Merge the run directories that ranks wrote on machines without a shared file system.",
    add_arguments=_add_arguments,
    run=_run,
)
