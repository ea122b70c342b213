"""`trainperf prove BEFORE AFTER`: run both trainings, interleaved, and compare them."""

import argparse

from trainperf.commands._options import COMPARISON, TURNS
from trainperf.commands.cli import Command, CommandResult, argument


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._comparison import options_of
    from trainperf.commands._looks import prove
    from trainperf.commands._paired_runs import ProofOptions
    from trainperf.core.paths import local_path

    return prove(
        (given.before, given.after),
        ProofOptions(
            pairs=given.pairs,
            steps=given.every,
            out=local_path(given.out),
            to_the_end=given.to_the_end,
        ),
        options_of(given),
    )


COMMAND = Command(
    name="prove",
    about="Prove or refute that a change is faster: trainings in turns, until it is decided.",
    examples=(
        'train.py "train.py --compile"',
        "main/train.py pull-request/train.py --decide --format json",
        'train.py "train.py --workers 4" --fail-on-regression 2%',
    ),
    arguments=(
        argument(
            "before", metavar="BEFORE", help='training command, in quotes: "train.py --lr 3e-4"'
        ),
        argument("after", metavar="AFTER", help="the same training with the change"),
        *TURNS,
        argument(
            "--out",
            metavar="DIR",
            default="runs/prove",
            help="folder for the runs, with a number behind it if it exists (default: runs/prove)",
        ),
        *COMPARISON,
    ),
    run=_run,
)
