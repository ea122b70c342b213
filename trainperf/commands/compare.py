"""`trainperf compare A B [C …]`: whether a change made training faster."""

import argparse

from trainperf.commands._options import (
    add_engine_option,
    add_format_option,
    add_window_options,
    window_of,
)
from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.reports import PAGES


def add_comparison_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every comparison."""
    add_format_option(parser, PAGES)
    parser.add_argument(
        "--loss-tolerance",
        metavar="SHARE",
        type=share_of,
        help="relative difference up to which the losses match, as in 2%% or 0.02 (default: 2%%)",
    )
    parser.add_argument(
        "--margin",
        metavar="SHARE",
        type=share_of,
        help="relative change up to which speeds count as equal, as in 2%% or 0.02 (default: 2%%)",
    )
    parser.add_argument(
        "--fail-on-regression",
        metavar="SHARE",
        type=share_of,
        help="exit with 0 if a slowdown of more than SHARE is excluded, with 1 if one is shown or "
        "the loss differs, with 3 if neither, with 2 if the runs are not comparable (default: no "
        "gate, exit with 0)",
    )
    parser.add_argument(
        "--decide",
        action="store_true",
        help="exit with 0 to keep the change (faster, or --fail-on-regression passes), with 1 to "
        "discard it, with 3 if that cannot be told, with 2 if the runs are not comparable",
    )
    parser.add_argument(
        "--undecided",
        choices=("pass", "fail"),
        default="fail",
        help="where the gate or decision is open, exit with 0 (pass) or with 3 (fail) "
        "(default: fail)",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="two or more run directories, by path or URL; each is compared with the first; "
        "join repeats of a run with commas, as in a1,a2,a3 b1,b2,b3",
    )
    add_comparison_options(parser)
    parser.add_argument(
        "--noise",
        metavar="SHARE",
        type=share_of,
        help="relative variation from run to run, as in 2%% or 0.02, to assume where there are no "
        "repeats (default: 2%%)",
    )
    add_window_options(parser)
    add_engine_option(parser)


def _run(given: argparse.Namespace) -> str | CommandResult:
    from trainperf.commands._comparison import compare_sides, options_of
    from trainperf.core.paths import path_of

    if len(given.runs) < 2:
        raise ConfigError(
            "one RUN: give at least two, the run before the change and the run after it"
        )
    sides = tuple(tuple(map(path_of, filter(None, run.split(",")))) for run in given.runs)
    return compare_sides(sides, options_of(given, given.noise, window_of(given)), given.engine)


def share_of(text: str) -> float:
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
    about="Tell whether runs are faster than the first, with intervals, and whether losses match.",
    examples=(
        "runs/before runs/after",
        "before1,before2,before3 after1,after2,after3",
        "runs/main runs/pull-request --fail-on-regression 5%",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
