"""A script or command as the user types it: its command line, its end, and what was told of it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trainperf.commands.cli import SIGNALLED
from trainperf.core.choice import first_that_holds
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchSignal


_REMEDY = "measure the loop itself with trainperf.loop.LoopMonitor"

POLL_S = 0.1
"""Between two checks whether what was started has ended, or a signal is to be passed on."""

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that a scheduler sends to what it started, which is us.

Ctrl-C comes to the script from the terminal itself.
"""


def command_of(script: str, arguments: Sequence[str], *, module: bool = False) -> list[str]:
    """The command line of a script or module, under this Python, or of a command on `PATH`.

    Raises:
        ConfigError: It is neither.
    """
    if module:
        return [sys.executable, "-m", script, *arguments]
    if script.endswith(".py"):
        if not Path(script).is_file():
            raise ConfigError(f"{script}: no such file; give the script that trains")
        return [sys.executable, script, *arguments]
    program = shutil.which(script)
    if program is None:
        raise ConfigError(
            f"{script}: neither a Python file nor a command; give the path of the script, or a "
            "module with -m"
        )
    return [program, *arguments]


CHOSEN = (LaunchSignal.OWN_DIRECTORY, LaunchSignal.OWN_AUDIT)
"""Options that a script may have chosen by itself."""


def why_unrecorded(signals: Container[LaunchSignal]) -> str:
    """Why nothing was recorded, by what the processes have told; empty where something was."""
    unstepped = (
        "no optimizer was stepped on this machine; to measure inference, put "
        'trainperf.loop.LoopMonitor(kind="inference") around its loop'
    )
    kept = "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps trainperf from being loaded; unset it"
    return first_that_holds(
        ("", LaunchSignal.RECORDED in signals),
        (
            f"an optimizer was stepped, but no loop was made out around it; {_REMEDY}",
            LaunchSignal.STEPPED in signals,
        ),
        (unstepped, LaunchSignal.LOADED in signals),
        (kept, os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"),
        ("no process of the script loaded PyTorch on this machine", True),
    )


def exit_code(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run it in this terminal and return its exit code."""
    with (
        subprocess.Popen(command, env=environment) as process,  # noqa: S603 the user's own script
        _forwarding(process),
    ):
        while True:
            try:
                code = process.wait(POLL_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                # The terminal interrupts the script as well: it ends its fit by itself.
                continue
            return code if code >= 0 else SIGNALLED - code


@contextmanager
def _forwarding(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass on what is sent to us, but for what whoever started us has us ignore."""
    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {
        number: signal.signal(number, lambda sent, _: process.send_signal(sent))
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
