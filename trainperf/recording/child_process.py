"""A process of our own beside the training: it samples, packs, uploads or reads a trace."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import trainperf
from trainperf.core.machine.processes import PARENT_VARIABLE


def start_child(
    module: str,
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE ARGUMENTS…` on one thread and without a device, quietly.

    Args:
        module: In full, e.g. `trainperf.recording.machine.process`.
        arguments: Its own; paths absolute, since it has another working directory.
        stdin: As `subprocess.Popen` takes it; a child that must end with this process has a pipe.
        stdout: As `subprocess.Popen` takes it.

    Raises:
        OSError: There is no process, or no memory for it.
    """
    # The kernel tells of the end of the thread that starts it: any but the main one ends before.
    watched = threading.current_thread() is threading.main_thread()
    ours = {PARENT_VARIABLE: str(os.getpid()) if watched else ""}
    return subprocess.Popen(  # noqa: S603 ourselves
        [sys.executable, "-m", module, *arguments],
        # There a user's own `queue.py` does not stand in for the standard library's.
        cwd=Path(trainperf.__file__).parents[1],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **ours},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is meant for the fit
    )


def end_child(child: "subprocess.Popen[bytes]") -> None:
    """End it and the processes of its own, drafts removed if it comes to that within a second."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(child.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1)
            return
