"""`trainperf prove BEFORE AFTER`: run both trainings, interleaved, and compare them."""

import argparse
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.commands.compare import add_comparison_options
from trainperf.core.errors import ConfigError


_PAIRS = 10


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
        help=f"times at most that both are run; it ends when it is decided (default: {_PAIRS})",
    )
    parser.add_argument(
        "--to-the-end",
        action="store_true",
        help="run every training to its end, also where a pair can show no more than it has",
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
    from trainperf.commands._comparison import options_of
    from trainperf.commands._looks import ProofOptions, prove
    from trainperf.core.interleaving import STEPS

    if given.pairs < 1:
        raise ConfigError(f"--pairs {given.pairs}: must be at least 1; try {_PAIRS}")
    if given.every is not None and given.every < 2:
        raise ConfigError(
            f"--every {given.every}: must be at least 2, the first step is excluded; try 10"
        )
    return prove(
        (given.before, given.after),
        ProofOptions(
            pairs=given.pairs,
            steps=given.every or STEPS,
            out=Path(given.out),
            to_the_end=given.to_the_end,
        ),
        options_of(given),
    )


COMMAND = Command(
    name="prove",
    about="Train with and without a change, interleaved on one machine, and compare the two.",
    add_arguments=_add_arguments,
    run=_run,
)
