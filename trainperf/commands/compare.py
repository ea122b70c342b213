"""`trainperf compare A B [C …]`: did the change do it?"""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.reports import PAGES


def declare_judging(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how runs are compared, and how that is shown."""
    parser.add_argument("--format", choices=PAGES, default="text", help="how to show it")
    parser.add_argument(
        "--loss-tolerance",
        metavar="SHARE",
        type=_share,
        help="relative difference of the losses that is none (default: 2%%)",
    )
    parser.add_argument(
        "--fail-on-regression",
        metavar="SHARE",
        type=_share,
        help="exit with 1 if a run is slower by more than that, or its loss differs; "
        "with 2 if it cannot be compared",
    )


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="two run directories or more: the others are compared with the first; "
        "repeats of one run are joined by commas, as in a1,a2,a3 b1,b2,b3",
    )
    declare_judging(parser)
    parser.add_argument(
        "--noise",
        metavar="SHARE",
        type=_share,
        help="how much a run differs from its repeat, where none is given (default: 2%%)",
    )


def _run(given: argparse.Namespace) -> str | CommandResult:
    from trainperf.commands._comparison import ComparisonOptions, compare_sides

    if len(given.runs) < 2:
        raise ConfigError("one RUN: give the run before the change and the one after it")
    sides = tuple(tuple(map(Path, filter(None, run.split(",")))) for run in given.runs)
    return compare_sides(
        sides,
        ComparisonOptions(
            form=given.format,
            loss_tolerance=given.loss_tolerance,
            noise=given.noise,
            most_slower=given.fail_on_regression,
        ),
    )


def _share(text: str) -> float:
    """A share as `5%` or `0.05`."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a share, as in 5% or 0.05")
    return value


COMPARE = Command(
    name="compare",
    about="Say whether a change made training faster, how sure that is, and if the loss matches.",
    declare=_declare,
    run=_run,
)
