"""`trainperf run SCRIPT …`: measure a Lightning training without changing its script."""

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
    "trainperf: no Lightning Trainer was built on this machine, so nothing was measured here; "
    "around a loop of your own put trainperf.loop.LoopMonitor\n"
)
_SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a process."""


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", help="where the run goes, if not where logs go")
    parser.add_argument(
        "--audit-at", metavar="N", type=int, help="look at every operator of step N"
    )
    parser.add_argument(
        "--loader-anatomy", action="store_true", help="look into the loader before the first step"
    )
    parser.add_argument(
        "script", metavar="SCRIPT", help="a Python file, or a command such as torchrun"
    )
    parser.add_argument(
        "arguments", metavar="...", nargs=argparse.REMAINDER, help="the script's own arguments"
    )


def _run(given: argparse.Namespace) -> CommandResult:
    if given.audit_at is not None and given.audit_at < 0:
        raise ConfigError(f"--audit-at {given.audit_at}: steps count from 0; try --audit-at 20")
    command = command_of(given.script, given.arguments)
    with tempfile.TemporaryDirectory(prefix="trainperf-run-") as place:
        seen = Path(place) / "seen"
        options = LaunchOptions(
            dirpath=None if given.out is None else str(Path(given.out).resolve()),
            audit_at=given.audit_at,
            loader_anatomy=given.loader_anatomy,
            seen=str(seen),
        )
        code = _ended(command, {**os.environ, **options.variable()})
        if not seen.exists():
            sys.stderr.write(_UNMEASURED)
    return CommandResult(text="", code=code)


RUN = Command(
    name="run",
    about="Run a training script under Lightning and measure it, without a change to it.",
    declare=_declare,
    run=_run,
    passes_on=True,
)


def command_of(script: str, arguments: Sequence[str]) -> list[str]:
    """A script with the Python that runs us, or a command as a shell would find it.

    Raises:
        ConfigError: It is neither.
    """
    if script.endswith(".py"):
        if not Path(script).is_file():
            raise ConfigError(f"{script}: no such file; give the script that trains")
        return [sys.executable, script, *arguments]
    found = shutil.which(script)
    if found is None:
        raise ConfigError(f"{script}: neither a Python file nor a command; give the script's path")
    return [found, *arguments]


def _ended(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run it in this terminal; its exit code."""
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 the user's own script
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                # The terminal has interrupted it as well: it ends its fit by itself.
                continue
            return code if code >= 0 else _SIGNALLED - code
