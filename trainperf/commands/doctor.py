"""`trainperf doctor RUN`: health checks on a run."""

import argparse
import sys

from trainperf.commands._options import format_argument, location
from trainperf.commands.cli import Command, CommandResult, argument
from trainperf.reports import NAMES


def _run(given: argparse.Namespace) -> CommandResult:
    from datetime import datetime, timezone

    from trainperf.analysis.doctor import Case, examined
    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.summarize import examine
    from trainperf.comparison.loss_parity import compare_losses, curve_of
    from trainperf.reports.doctor import checkup_document
    from trainperf.reports.layout.forms import rendered

    now_s = datetime.now(tz=timezone.utc).timestamp()
    run = Run.open(given.run)
    case = Case(facts=examine(run, now_s=now_s))
    if given.baseline is not None:
        before = Run.open(given.baseline)
        case = Case(
            facts=case.facts,
            baseline=examine(before, now_s=now_s),
            parity=compare_losses([curve_of(run)], [curve_of(before)]),
        )
    checkup = examined(case)
    title = case.facts.run.name
    text = rendered(checkup_document(checkup, title), checkup, given.format, sys.stdout)
    return CommandResult(text=text, code=1 if given.strict and checkup.number("fail") else 0)


COMMAND = Command(
    name="doctor",
    about="Check the health of a run: what passes, what fails, and the evidence for each.",
    examples=("runs/a", "runs/b --baseline runs/a --strict"),
    arguments=(
        argument(
            "run",
            metavar="RUN",
            type=location,
            help="run directory, or a directory above it, by path or URL",
        ),
        argument(
            "--baseline",
            metavar="RUN",
            type=location,
            help="earlier run whose loss is compared, and whose trials decide on precision "
            "(default: none)",
        ),
        argument(
            "--strict",
            action="store_true",
            help="exit with 1 if a check failed, rather than with 0",
        ),
        format_argument(NAMES),
    ),
    run=_run,
    gone={"--script": "trainperf run --out runs/a train.py, then trainperf doctor runs/a"},
)
