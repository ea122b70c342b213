"""`trainperf doctor RUN`: health checks of a run, each with its evidence."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.reports import NAMES


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, nargs="?", help="run directory, or one above it"
    )
    parser.add_argument(
        "--script",
        metavar="FILE",
        type=Path,
        help="run this training script first and check the run it leaves below RUN; without RUN, "
        "in an empty working directory",
    )
    parser.add_argument(
        "--baseline", metavar="RUN", type=Path, help="an earlier run to compare precision and loss"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a check failed")
    parser.add_argument("--format", choices=NAMES, default="text", help="how to show it")


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._doctor_case import checked
    from trainperf.commands._run_script import run_of

    if given.script is not None:
        with run_of(given.script, given.run) as path:
            return checked(
                path,
                given.baseline,
                form=given.format,
                strict=given.strict,
                name=given.script.name,
            )
    if given.run is None:
        raise ConfigError("no RUN: give a run directory, or --script FILE; see trainperf doctor -h")
    return checked(given.run, given.baseline, form=given.format, strict=given.strict)


DOCTOR = Command(
    name="doctor",
    about="Run the health checks on a run and print the evidence for each.",
    declare=_declare,
    run=_run,
)
