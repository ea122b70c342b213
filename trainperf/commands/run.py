"""`trainperf run SCRIPT …`: measurement of a training without changing its script."""

import argparse
import sys

from trainperf.commands._options import LAUNCH
from trainperf.commands.cli import Command, CommandResult, argument
from trainperf.core.errors import ConfigError


def _run(given: argparse.Namespace) -> CommandResult:
    import tempfile
    from pathlib import Path

    from trainperf.commands._launching import CHOSEN, command_of, exit_code, why_unrecorded
    from trainperf.core.launch_environment import LaunchOptions, signals_in
    from trainperf.core.paths import path_of

    if given.no_audit and given.audit_at is not None:
        raise ConfigError(f"--no-audit and --audit-at {given.audit_at}: give one of the two")
    command = command_of(given.script, given.arguments, module=given.module)
    with tempfile.TemporaryDirectory(prefix="trainperf-run-") as folder:
        options = LaunchOptions(
            dirpath=None if given.out is None else str(path_of(given.out).resolve()),
            audit_at=given.audit_at,
            audit=not given.no_audit,
            signals=folder,
        )
        code = exit_code(command, options.environment())
        signals = signals_in(Path(folder))
    if why := why_unrecorded(signals):
        sys.stderr.write(f"trainperf: nothing was recorded: {why}\n")
    if chosen := [own.value for own in CHOSEN if own in signals]:
        sys.stderr.write(f"trainperf: {' and '.join(chosen)}: the script's own choice was kept\n")
    return CommandResult(text="", code=code)


COMMAND = Command(
    name="run",
    about="Measure a training without changing its script, and print where its time goes.",
    examples=(
        "train.py --lr 3e-4",
        "--out runs/a --audit-at 20 train.py",
        "-m package.train",
        "torchrun --nproc-per-node 8 train.py",
    ),
    arguments=(
        argument(
            "--out",
            metavar="DIR",
            help="folder for the run directory, or its URL (default: the Trainer's own, else runs)",
        ),
        argument(
            "script",
            metavar="SCRIPT",
            help="Python file, or a command such as torchrun; with -m a module",
        ),
        *LAUNCH,
        argument(
            "--no-audit",
            action="store_true",
            help="look at the operators of no step",
        ),
    ),
    run=_run,
    forwards_arguments=True,
)
