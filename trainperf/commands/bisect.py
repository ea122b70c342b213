"""`trainperf bisect GOOD BAD -- COMMAND`: the first slow commit, or package, between two."""

import argparse
import sys

from trainperf.commands._options import add_format_option, add_turn_options, check_turns
from trainperf.commands.cli import Command, CommandResult
from trainperf.commands.compare import share_of
from trainperf.core.errors import ConfigError
from trainperf.core.places import local_path
from trainperf.reports import NAMES


_EXIT_CODES = {"found": 0, "not slower": 1}
"""3 is that of the others: it cannot be told."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "good", metavar="GOOD", nargs="?", help="commit, tag or branch that trains fast"
    )
    parser.add_argument(
        "bad", metavar="BAD", nargs="?", help="later commit, tag or branch that trains slowly"
    )
    parser.add_argument(
        "command",
        metavar="-- COMMAND",
        nargs="*",
        help="training, as it is typed: train.py --lr 3e-4, or a command such as torchrun",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        action="append",
        default=[],
        help="given twice, in place of GOOD and BAD: the Python of a fast environment, and that "
        "of a slow one, whose packages are searched (default: commits are)",
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

    from trainperf.commands._bisection import (
        Subject,
        bisected,
        commit_subject,
        measuring,
        package_subject,
    )
    from trainperf.commands._commits import Outside
    from trainperf.commands._looks import ProofOptions
    from trainperf.commands._paired_runs import sigterm_as_interrupt, unused_folder
    from trainperf.reports.bisection import bisection_document
    from trainperf.reports.layout.forms import as_json_line, rendered

    _check(given)
    out = unused_folder(local_path(given.out)).absolute()
    with (
        tempfile.TemporaryDirectory(prefix="trainperf-bisect-") as folder,
        sigterm_as_interrupt(),
    ):
        words, place = tuple(given.command), Path(folder).resolve()
        if given.python:
            subject: Subject = package_subject(given.python, words, place)
        else:
            outside = Outside(linked=tuple(given.link), out=out)
            subject = commit_subject((given.good, given.bad), words, place, outside)
        proof = ProofOptions(
            pairs=given.pairs, steps=given.every, out=out, to_the_end=given.to_the_end
        )
        bisection = bisected(subject, words, given.slower, measuring(subject, proof))
    code = _EXIT_CODES.get(bisection.end, 3)
    if given.format == "json":
        return CommandResult(text=as_json_line(bisection), code=code)
    shown = rendered(bisection_document(bisection), bisection, given.format, sys.stdout)
    return CommandResult(text=shown, code=code)


def _check(given: argparse.Namespace) -> None:
    if not given.command:
        raise ConfigError(
            "no COMMAND: give the training behind --, as in bisect v1 HEAD -- train.py"
        )
    if given.python and (len(given.python) != 2 or given.good):
        raise ConfigError("--python: give it twice, the fast one first, and then no GOOD and BAD")
    if not given.python and given.bad is None:
        raise ConfigError("no GOOD and BAD: give two commits, or --python twice")
    check_turns(given)


COMMAND = Command(
    name="bisect",
    about="Find the commit that made a training slow, or the package that slows an environment.",
    examples=(
        "v1.0 HEAD -- train.py --lr 3e-4",
        "v1.0 HEAD --slower 5% --link data -- train.py",
        "--python fast/bin/python --python slow/bin/python -- train.py",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_command=True,
)
