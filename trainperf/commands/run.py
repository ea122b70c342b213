"""`trainperf run SCRIPT …`: measurement of a Lightning training without changing its script."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainperf.commands.cli import Command, CommandResult
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions


_UNMEASURED = (
    "trainperf: no Lightning Trainer was created on this machine, so nothing was measured; "
    "in a training loop of your own use trainperf.loop.LoopMonitor\n"
)
_SIGNALLED = 128
"""Added by a shell to the number of the signal that ended a process."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder for the run directory (default: where the Trainer logs)",
    )
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
    if given.audit_at is not None and given.audit_at < 0:
        raise ConfigError(f"--audit-at {given.audit_at}: steps count from 0; try --audit-at 20")
    command = command_of(given.script, given.arguments)
    with tempfile.TemporaryDirectory(prefix="trainperf-run-") as folder:
        marker = Path(folder) / "trainer-built"
        options = LaunchOptions(
            dirpath=None if given.out is None else str(Path(given.out).resolve()),
            audit_at=given.audit_at,
            loader_anatomy=given.loader_anatomy,
            marker=str(marker),
        )
        code = _exit_code(command, {**os.environ, **options.variable()})
        if not marker.exists():
            sys.stderr.write(_UNMEASURED)
    return CommandResult(text="", code=code)


COMMAND = Command(
    name="run",
    about="Run a Lightning training script and measure it, without changing the script.",
    add_arguments=_add_arguments,
    run=_run,
    forwards_arguments=True,
)


def command_of(script: str, arguments: Sequence[str]) -> list[str]:
    """The command line of a script, under this Python, or of a command found on `PATH`.

    Raises:
        ConfigError: It is neither.
    """
    if script.endswith(".py"):
        if not Path(script).is_file():
            raise ConfigError(f"{script}: no such file; give the script that trains")
        return [sys.executable, script, *arguments]
    program = shutil.which(script)
    if program is None:
        raise ConfigError(
            f"{script}: neither a Python file nor a command; give the path of the script"
        )
    return [program, *arguments]


def _exit_code(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run it in this terminal and return its exit code."""
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 the user's own script
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                # The terminal interrupts the script as well: it ends its fit by itself.
                continue
            return code if code >= 0 else _SIGNALLED - code
