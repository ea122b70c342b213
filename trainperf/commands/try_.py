"""`trainperf try SCRIPT …`: measurement of what changes would bring, before anybody makes them."""

import argparse
import shlex
from pathlib import Path

from trainperf.commands.cli import INTERRUPTED, Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.reports import NAMES


_MINUTES = 2.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("runs/try"),
        help="folder for the run; numbered on if it exists (default: runs/try)",
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=float,
        default=_MINUTES,
        help=f"for all trials together, the start of the script excluded (default: {_MINUTES:g})",
    )
    parser.add_argument(
        "--only", metavar="ID", action="append", default=[], help="try this; may be repeated"
    )
    parser.add_argument(
        "--without",
        metavar="ID",
        action="append",
        default=[],
        help="do not try this; may be repeated",
    )
    parser.add_argument("--format", choices=NAMES, default="text", help="output format")
    parser.add_argument("--audit-at", metavar="N", type=int, help="audit every operator of step N")
    parser.add_argument(
        "--loader-anatomy",
        action="store_true",
        help="time the parts of the data loader before the first step",
    )
    parser.add_argument(
        "script", metavar="SCRIPT", help="Python file, or a command such as torchrun"
    )
    parser.add_argument(
        "arguments", metavar="...", nargs=argparse.REMAINDER, help="arguments of the script"
    )


def _run(given: argparse.Namespace) -> CommandResult:
    from trainperf.commands._attempts import AttemptOptions, try_out
    from trainperf.commands._trial_output import shown, trial_progress
    from trainperf.commands.run import command_of
    from trainperf.core.launch_environment import LaunchOptions, TrialLaunch

    _check(given)
    trials = TrialLaunch(
        minutes=given.minutes,
        only=tuple(given.only),
        without=tuple(given.without),
        script=shlex.join([given.script, *given.arguments]),
    )
    command = command_of(given.script, given.arguments)
    launch = LaunchOptions(audit_at=given.audit_at, loader_anatomy=given.loader_anatomy)
    with trial_progress() as progress:
        tried = try_out(
            AttemptOptions(
                command=command,
                out=given.out,
                launch=launch,
                trials=trials,
                tell=progress.tell,
                say=progress.say,
            )
        )
        if given.only and not tried.trials.trials:
            progress.say(f"--only {' '.join(given.only)}: no trial of this training is named so")
        if tried.warning:
            progress.say(tried.warning)
        progress.say(f"the run is {tried.path}")
    text = shown(tried.trials, given.format)
    return CommandResult(text=text, code=INTERRUPTED if tried.interrupted else 0)


COMMAND = Command(
    name="try",
    about="Try changes in a training that is thrown away, and measure what each would bring.",
    add_arguments=_add_arguments,
    run=_run,
    forwards_arguments=True,
)


def _check(given: argparse.Namespace) -> None:
    if given.minutes <= 0:
        raise ConfigError(f"--minutes {given.minutes:g}: must be above 0; try {_MINUTES:g}")
    if given.audit_at is not None and given.audit_at < 0:
        raise ConfigError(f"--audit-at {given.audit_at}: steps count from 0; try --audit-at 20")
    both = sorted({*given.only} & {*given.without})
    if both:
        raise ConfigError(f"--only and --without {both[0]}: give one of the two")
