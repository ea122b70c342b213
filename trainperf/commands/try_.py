"""`trainperf try SCRIPT …`: measurement of what changes would bring, before anybody makes them."""

import argparse
import sys

from trainperf.commands._options import LAUNCH, above_zero, format_argument
from trainperf.commands.cli import INTERRUPTED, Command, CommandResult, argument, say
from trainperf.core.errors import ConfigError
from trainperf.reports import NAMES


def _run(given: argparse.Namespace) -> CommandResult:
    import shlex

    from trainperf.commands._attempts import AttemptOptions, try_out
    from trainperf.commands._launching import command_of
    from trainperf.core.launch_environment import LaunchOptions, TrialLaunch
    from trainperf.core.paths import local_path
    from trainperf.reports.layout.forms import rendered
    from trainperf.reports.trials import trials_document

    if given.list:
        return CommandResult(text=_listed(given), code=0)
    _check(given)
    trials = TrialLaunch(
        minutes=given.minutes,
        only=tuple(given.only),
        without=tuple(given.without),
        script=shlex.join([*["-m"] * given.module, given.script, *given.arguments]),
    )
    tried = try_out(
        AttemptOptions(
            words=command_of(given.script, given.arguments, module=given.module),
            out=local_path(given.out),
            launch=LaunchOptions(audit_at=given.audit_at),
            trials=trials,
        )
    )
    if given.only and not tried.trials.trials:
        say(f"--only {' '.join(given.only)}: no trial of this training is named so, see --list")
    for sentence in (*tried.remarks, f"the run is {tried.path}"):
        say(sentence)
    text = rendered(trials_document(tried.trials), tried.trials, given.format, sys.stdout)
    return CommandResult(text=text, code=INTERRUPTED if tried.interrupted else 0)


COMMAND = Command(
    name="try",
    about="Measure what each change would bring, in a training that is thrown away.",
    examples=(
        "train.py",
        "--only autocast_bf16 --minutes 1 train.py --lr 3e-4",
        "--list",
        "--list runs/a",
    ),
    arguments=(
        argument(
            "--out",
            metavar="DIR",
            default="runs/try",
            help="folder for the run, with a number behind it if it exists (default: runs/try)",
        ),
        argument(
            "--minutes",
            metavar="N",
            type=above_zero,
            default=2.0,
            help="minutes that all trials together may take, without the start of the script "
            "(default: 2)",
        ),
        argument(
            "--only",
            metavar="ID",
            action="append",
            default=[],
            help="try this change, as --list names it; may be repeated (default: all that apply)",
        ),
        argument(
            "--without",
            metavar="ID",
            action="append",
            default=[],
            help="leave this change out, as --list names it; may be repeated (default: none)",
        ),
        argument(
            "--list",
            action="store_true",
            help="train nothing: list what can be tried, or with a run directory as SCRIPT what "
            "did not apply when it was tried there",
        ),
        format_argument(NAMES),
        argument(
            "script",
            metavar="SCRIPT",
            nargs="?",
            help="Python file, or a command such as torchrun; with -m a module",
        ),
        *LAUNCH,
    ),
    run=_run,
    forwards_arguments=True,
)


def _listed(given: argparse.Namespace) -> str:
    """What can be tried, and what did not apply when it was tried in a run."""
    from pathlib import Path

    from trainperf.analysis.diagnosis.offers import offered_trials
    from trainperf.analysis.run.directory import Run
    from trainperf.core.artifacts import read_document
    from trainperf.core.artifacts.trials import Trials
    from trainperf.reports.layout.forms import rendered
    from trainperf.reports.trial_offers import offers_document

    if given.script is None:
        offers = offered_trials(None)
        return rendered(offers_document(offers, ""), offers, given.format, sys.stdout)
    if Path(given.script).is_file() or given.module:
        raise ConfigError(
            f"--list {given.script}: a script is known once it trains; give a run directory of it, "
            "or leave it out to see all trials"
        )
    run = Run.open(Path(given.script))
    offers = offered_trials(read_document(Trials, run.path))
    return rendered(offers_document(offers, str(run.path)), offers, given.format, sys.stdout)


def _check(given: argparse.Namespace) -> None:
    if given.script is None:
        raise ConfigError("no SCRIPT: give a Python file, or --list to see what can be tried")
    both = sorted({*given.only} & {*given.without})
    if both:
        raise ConfigError(f"--only and --without {both[0]}: give one of the two")
