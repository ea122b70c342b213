"""`trainperf compare A B [C …]`: whether a change made training faster."""

import argparse

from trainperf.commands._options import COMPARISON, ENGINE, WINDOW, share_of, window_of
from trainperf.commands.cli import Command, CommandResult, argument
from trainperf.core.errors import ConfigError


def _run(given: argparse.Namespace) -> str | CommandResult:
    from trainperf.commands._comparison import compare_sides, options_of
    from trainperf.core.paths import path_of

    if len(given.runs) < 2:
        raise ConfigError(
            "one RUN: give at least two, the run before the change and the run after it"
        )
    sides = tuple(tuple(map(path_of, filter(None, run.split(",")))) for run in given.runs)
    return compare_sides(sides, options_of(given, given.noise, window_of(given)), given.engine)


COMMAND = Command(
    name="compare",
    about="Tell whether runs are faster than the first, with intervals, and whether losses match.",
    examples=(
        "runs/before runs/after",
        "before1,before2,before3 after1,after2,after3",
        "runs/main runs/pull-request --fail-on-regression 5%",
    ),
    arguments=(
        argument(
            "runs",
            metavar="RUN",
            nargs="+",
            help="two or more run directories, by path or URL; each is compared with the first; "
            "join repeats of a run with commas, as in a1,a2,a3 b1,b2,b3",
        ),
        *COMPARISON,
        argument(
            "--noise",
            metavar="SHARE",
            type=share_of,
            help="relative variation from run to run, as in 2%% or 0.02, to assume where there "
            "are no repeats (default: 2%%)",
        ),
        *WINDOW,
        ENGINE,
    ),
    run=_run,
)
