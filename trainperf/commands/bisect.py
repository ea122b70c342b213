"""`trainperf bisect GOOD BAD -- COMMAND`: the first slow commit between two."""

import argparse
import sys

from trainperf.commands._options import add_format_option, add_turn_options, check_turns
from trainperf.commands.cli import Command, CommandResult
from trainperf.commands.compare import share_of
from trainperf.core.errors import ConfigError
from trainperf.core.paths import local_path
from trainperf.reports import NAMES


_EXIT_CODES = {"found": 0, "not slower": 1}
"""3 is that of the others: it cannot be told."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("good", metavar="GOOD", help="commit, tag or branch that trains fast")
    parser.add_argument("bad", metavar="BAD", help="later commit, tag or branch that trains slowly")
    parser.add_argument(
        "command",
        metavar="-- COMMAND",
        nargs="*",
        help="training, as it is typed: train.py --lr 3e-4, or a command such as torchrun",
    )
    parser.add_argument(
        "--slower",
        metavar="SHARE",
        type=share_of,
        help="how much slower than GOOD counts as slow, as in 5%% or 0.05 (default: half of what "
        "BAD is)",
    )
    add_turn_options(parser)
    parser.add_argument(
        "--link",
        metavar="PATH",
        action="append",
        default=[],
        help="untracked file or folder that trainings read, relative to the top of the repository; "
        "may be repeated (default: all that do not look like outputs)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/bisect",
        help="folder for the runs, with a number behind it if it exists (default: runs/bisect)",
    )
    add_format_option(parser, NAMES)


def _run(given: argparse.Namespace) -> CommandResult:
    import tempfile
    from pathlib import Path

    from msgspec.structs import replace

    from trainperf.commands._bisection import Hunt, measuring
    from trainperf.commands._commits import Checkouts, Repository
    from trainperf.commands._paired_runs import ProofOptions
    from trainperf.commands._trainings import sigterm_as_interrupt, unused_folder
    from trainperf.reports.bisection import bisection_document
    from trainperf.reports.layout.forms import as_json_line, rendered

    if not given.command:
        raise ConfigError(
            "no COMMAND: give the training behind --, as in bisect v1 HEAD -- train.py"
        )
    check_turns(given)
    out, repository = unused_folder(local_path(given.out)).absolute(), Repository.here()
    ends = repository.ends(given.good, given.bad)
    with (
        tempfile.TemporaryDirectory(prefix="trainperf-bisect-") as folder,
        sigterm_as_interrupt(),
    ):
        checkouts = Checkouts(
            repository=repository,
            words=given.command,
            folder=Path(folder).resolve(),
            linked=tuple(given.link),
            out=out,
            warnings=repository.uncommitted(),
        )
        proof = ProofOptions(
            pairs=given.pairs, steps=given.every, out=out, to_the_end=given.to_the_end
        )
        hunt = Hunt(
            repository=repository,
            ends=ends,
            command=tuple(given.command),
            slower=given.slower,
            measure=measuring(checkouts, proof),
        )
        bisection = replace(hunt(), warnings=tuple(checkouts.warnings))
    code = _EXIT_CODES.get(bisection.end, 3)
    if given.format == "json":
        return CommandResult(text=as_json_line(bisection), code=code)
    shown = rendered(bisection_document(bisection), bisection, given.format, sys.stdout)
    return CommandResult(text=shown, code=code)


COMMAND = Command(
    name="bisect",
    about="Find the commit that made a training slow: each is trained in turns with a fast one.",
    examples=(
        "v1.0 HEAD -- train.py --lr 3e-4",
        "v1.0 HEAD --slower 5% --link data -- train.py",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_command=True,
    gone={
        "--python": "trainperf prove 'old/bin/python train.py' 'new/bin/python train.py' tells "
        "what the environment costs"
    },
)
