"""`trainperf prove BEFORE AFTER`: run both trainings, interleaved, and compare them."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.commands.compare import add_comparison_options
from trainperf.core.errors import ConfigError


_PAIRS = 5


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "before", metavar="BEFORE", help='training command, as in "train.py --lr 3e-4"'
    )
    parser.add_argument("after", metavar="AFTER", help="the same training with the change")
    parser.add_argument(
        "--pairs",
        metavar="N",
        type=int,
        default=_PAIRS,
        help=f"times that both are run (default: {_PAIRS})",
    )
    parser.add_argument(
        "--every", metavar="N", type=int, help="fewest steps per turn (default: 10)"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/prove",
        help="folder for the runs (default: runs/prove)",
    )
    add_comparison_options(parser)


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._comparison import compare_sides, options_of
    from trainperf.commands._paired_runs import PairOptions, run_pairs
    from trainperf.core.interleaving import STEPS

    if given.pairs < 2:
        raise ConfigError(
            f"--pairs {given.pairs}: must be at least 2, so that there are repeats; try 5"
        )
    if given.every is not None and given.every < 2:
        raise ConfigError(
            f"--every {given.every}: must be at least 2, the first step is excluded; try 10"
        )
    sides = run_pairs(
        (given.before, given.after),
        PairOptions(pairs=given.pairs, steps=given.every or STEPS, out=Path(given.out)),
    )
    return compare_sides(sides, options_of(given))


COMMAND = Command(
    name="prove",
    about="Train with and without a change, interleaved on one machine, and compare the two.",
    add_arguments=_add_arguments,
    run=_run,
)
