"""Processes on one machine: how one can tell that another has ended, and how ours end.

Linux only: elsewhere nobody has an identity, and how long a run has been silent must do.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


PARENT_VARIABLE = "TRAINPERF_PARENT"
"""Environment variable of our processes beside a training: the number of the training process.

Empty where the kernel cannot watch it.
"""

_LOWEST_PRIORITY = 19
_PR_SET_PDEATHSIG = 1


PROC = Path("/proc")


def run_beside_parent(at_its_end: signal.Signals = signal.SIGKILL) -> None:
    """Take the lowest priority, and get a signal when the training that started this process ends.

    The kernel sends it, however the training ends; `SIGKILL` ends a process that is stopped, too,
    and `SIGTERM` lets it take its drafts along.  On another system than Linux nothing is sent.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    take_lowest_priority()
    parent = os.environ.get(PARENT_VARIABLE)
    if not parent or sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 on Linux alone

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, at_its_end)
    if os.getppid() != int(parent):  # it ended before the kernel was asked
        os.kill(os.getpid(), at_its_end)


def take_lowest_priority() -> None:
    """Leave the processors to the training, as far as the system lets a process choose that."""
    with suppress(OSError, AttributeError):
        os.nice(_LOWEST_PRIORITY)


def this_process(proc: Path = PROC) -> str:
    """Boot, space of process numbers, number and start of this process; empty if unknown."""
    pid = os.getpid()
    started = _started(pid, proc)
    space = _space(proc)
    return f"{space}/{pid}/{started}" if space and started else ""


def age_s(proc: Path = PROC) -> float | None:
    """Seconds since this process started, to a hundredth; `None` if unknown."""
    started = _started(os.getpid(), proc)
    if not started:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) / os.sysconf("SC_CLK_TCK")


def has_died(process: str, proc: Path = PROC) -> bool | None:
    """Whether the process with this identity has ended; `None` if it cannot be seen from here.

    A number that the system has given to another process since is told by its start.
    """
    space, pid, started = ["", "", *process.rsplit("/", 2)][-3:]
    if not space or space != _space(proc) or not pid.isdigit():
        return None
    now = _started(int(pid), proc)
    return None if not now and _is_hidden(int(pid), proc) else now != started


def _space(proc: Path) -> str:
    """This boot of the machine, and which of its containers counts the processes."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int, proc: Path) -> str:
    """Clock ticks from boot to the start of a process; empty where it no longer runs."""
    try:
        # The name is in brackets and may hold anything: state is the first field after it.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] in _ENDED else fields[19].decode()
    except (OSError, IndexError):
        return ""


def _is_hidden(pid: int, proc: Path) -> bool:
    """Whether it runs and is not shown: `/proc` mounted with `hidepid` hides other users'."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.access(proc / str(pid) / "stat", os.R_OK)
    except (ProcessLookupError, OverflowError):
        pass
    return False


_ENDED = (b"Z", b"X")
"""States of a process that has ended and whose parent has not asked how."""
