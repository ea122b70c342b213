"""`trainperf merge DIR…`: the directories that ranks left on their machines become one run."""

import argparse
import sys
from pathlib import Path

from trainperf.commands.cli import Command


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parts", metavar="DIR", nargs="+", type=Path, help="what one machine's ranks left"
    )
    parser.add_argument(
        "--out", metavar="RUN", type=Path, required=True, help="the run directory to make"
    )


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.run.merge import merge
    from trainperf.analysis.summarize import save_summary
    from trainperf.reports.html.run import load_page_data, save
    from trainperf.reports.run.formats import rendered

    run = merge([Run.open(part) for part in given.parts], given.out)
    seen = load_page_data(run)
    save_summary(seen.evidence.summary, run.path)
    save(seen, run.path)
    return f"{rendered(seen.evidence.summary, sys.stdout)}\n  {run.path}\n"


MERGE = Command(
    name="merge",
    about="Join what the ranks of one run left on machines that share no files.",
    declare=_declare,
    run=_run,
)
