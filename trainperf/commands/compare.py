"""`trainperf compare A B [C …]`: whether a change made training faster."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.reports import PAGES


def add_comparison_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every comparison."""
    parser.add_argument("--format", choices=PAGES, default="text", help="output format")
    parser.add_argument(
        "--loss-tolerance",
        metavar="SHARE",
        type=_share,
        help="relative difference up to which the losses match (default: 2%%)",
    )
    parser.add_argument(
        "--margin",
        metavar="SHARE",
        type=_share,
        help="relative change up to which speeds count as equal (default: 2%%)",
    )
    parser.add_argument(
        "--fail-on-regression",
        metavar="SHARE",
        type=_share,
        help="exit with 0 if a slowdown of more than SHARE is excluded, with 1 if one is shown "
        "or the loss differs, with 3 if neither, with 2 if the runs are not comparable",
    )
    parser.add_argument(
        "--undecided",
        choices=("pass", "fail"),
        default="fail",
        help="exit with 0 or with 3 where the gate is undecided (default: fail)",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="two or more run directories; each is compared with the first; "
        "join repeats of a run with commas, as in a1,a2,a3 b1,b2,b3",
    )
    add_comparison_options(parser)
    parser.add_argument(
        "--noise",
        metavar="SHARE",
        type=_share,
        help="run-to-run variation to assume where there are no repeats (default: 2%%)",
    )


def _run(given: argparse.Namespace) -> str | CommandResult:
    from trainperf.commands._comparison import compare_sides, options_of

    if len(given.runs) < 2:
        raise ConfigError(
            "one RUN: give at least two, the run before the change and the run after it"
        )
    sides = tuple(tuple(map(Path, filter(None, run.split(",")))) for run in given.runs)
    return compare_sides(sides, options_of(given, given.noise))


def _share(text: str) -> float:
    """A share, written as `5%` or `0.05`."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a share, as in 5% or 0.05")
    return value


COMMAND = Command(
    name="compare",
    about="Compare runs: faster or slower, with an interval, and whether the losses match.",
    add_arguments=_add_arguments,
    run=_run,
)
