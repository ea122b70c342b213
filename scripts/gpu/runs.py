"""Runs a part of the check in its own process, which ends at its time limit."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


ROOT = Path(__file__).resolve().parents[2]

KEPT = 4000
"""Characters of a part's output that are kept: the end of it says what went wrong."""

GRACE_S = 5.0
"""Between the interrupt, at which a part may write what it has, and the end of its processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A part that has run: how it ended, how long it took, and what it printed."""

    code: int | None
    """Exit code; `None` when the time limit ended it."""
    took_s: float
    limit_s: float
    printed: str
    complained: str

    def outcome(self) -> dict[str, object]:
        """What is written down about any part."""
        return {
            "ok": self.code == 0,
            "exit_code": self.code,
            "timed_out": self.code is None,
            "took_s": round(self.took_s, 1),
            "limit_s": round(self.limit_s, 1),
            "stderr": self.complained[-KEPT:] if self.code != 0 else "",
        }


def run(arguments: Sequence[str], environment: Mapping[str, str], limit_s: float) -> FinishedRun:
    """A Python process in the repository, over with all its children at the limit.

    It is interrupted some seconds before, so that it can write down what it has.
    """
    begun = time.perf_counter()
    # Files, not pipes: a grandchild that outlives its parent would hold a pipe open.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complained,
            start_new_session=True,
        ) as process:
            try:
                code = _ended(process, limit_s)
            finally:
                _end_group(process.pid)
        took_s = time.perf_counter() - begun
        output = [_read(stream) for stream in (printed, complained)]
    return FinishedRun(
        code=code, took_s=took_s, limit_s=limit_s, printed=output[0], complained=output[1]
    )


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """The exit code; `None` if the limit came first."""
    grace_s = min(GRACE_S, limit_s / 4)
    try:
        return process.wait(timeout=limit_s - grace_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace_s)
    return None


def _end_group(group: int) -> None:
    """Loader workers and whatever else is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _read(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")
