"""`trainperf prove BEFORE AFTER`: train both at once, in turns, and say whether it is faster."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.commands.compare import declare_judging
from trainperf.core.errors import ConfigError


_PAIRS = 5


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE", help='a training, as in "train.py --lr 3e-4"')
    parser.add_argument("after", metavar="AFTER", help="the same after the change")
    parser.add_argument(
        "--pairs",
        metavar="N",
        type=int,
        default=_PAIRS,
        help=f"how often both are run (default: {_PAIRS})",
    )
    parser.add_argument(
        "--every", metavar="N", type=int, help="steps of a turn, at least (default: 10)"
    )
    parser.add_argument(
        "--out", metavar="DIR", default="runs/prove", help="where the runs go (default: runs/prove)"
    )
    declare_judging(parser)


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._comparison import ComparisonOptions, compare_sides
    from trainperf.commands._paired_runs import Pairs, runs_of
    from trainperf.core.interleaving import STEPS

    if given.pairs < 2:
        raise ConfigError(f"--pairs {given.pairs}: at least 2, or nothing is repeated; try 5")
    if given.every is not None and given.every < 2:
        raise ConfigError(f"--every {given.every}: the first step of a turn is left out; try 10")
    sides = runs_of(
        (given.before, given.after),
        Pairs(number=given.pairs, steps=given.every or STEPS, out=Path(given.out)),
    )
    options = ComparisonOptions(
        form=given.format, loss_tolerance=given.loss_tolerance, most_slower=given.fail_on_regression
    )
    return compare_sides(sides, options)


PROVE = Command(
    name="prove",
    about="Train with and without a change, a few steps each in turns, and say if it is faster.",
    declare=_declare,
    run=_run,
)
