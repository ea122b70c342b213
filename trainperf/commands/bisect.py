"""`trainperf bisect GOOD BAD -- COMMAND`: the first slow commit between two."""

import argparse

from trainperf.commands._options import TURNS, share_of
from trainperf.commands.cli import Command, CommandResult, argument
from trainperf.core.errors import ConfigError


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._bisection import bisected

    if not given.command:
        raise ConfigError(
            "no COMMAND: give the training behind --, as in bisect v1 HEAD -- train.py"
        )
    return bisected(given)


COMMAND = Command(
    name="bisect",
    about="Find the commit that made a training slow: each is trained in turns with a fast one.",
    examples=(
        "v1.0 HEAD -- train.py --lr 3e-4",
        "v1.0 HEAD --slower 20% --link data -- train.py",
    ),
    arguments=(
        argument("good", metavar="GOOD", help="commit, tag or branch that trains fast"),
        argument("bad", metavar="BAD", help="later commit, tag or branch that trains slowly"),
        argument(
            "command",
            metavar="-- COMMAND",
            nargs="*",
            help="training, as it is typed: train.py --lr 3e-4, or a command such as torchrun",
        ),
        argument(
            "--slower",
            metavar="SHARE",
            type=share_of,
            default=0.05,
            help="how much slower than GOOD counts as slow, as in 5%% or 0.05 (default: 0.05)",
        ),
        *TURNS,
        argument(
            "--link",
            metavar="PATH",
            action="append",
            default=[],
            help="untracked file or folder that trainings read, relative to the top of the "
            "repository; may be repeated (default: none)",
        ),
        argument(
            "--out",
            metavar="DIR",
            default="runs/bisect",
            help="folder for the runs, with a number behind it if it exists (default: runs/bisect)",
        ),
    ),
    run=_run,
    takes_command=True,
)
