"""Which processor is this thread on, and how does it get to another one?

The processors of one machine differ in speed while other work is on them.  Linux only: elsewhere
nobody knows, and nothing is moved.
"""

import os
from contextlib import suppress
from pathlib import Path


_STAT = Path("/proc/thread-self/stat")
_PLACE = 36
"""Of the number of the processor behind the name in that file (field 39 of proc(5))."""


def processor() -> int | None:
    """The number of the one this thread runs on; `None` where nobody says."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        return int(fields[_PLACE])
    except (OSError, IndexError, ValueError):
        return None


def move_to(number: int | None) -> None:
    """Bring this thread there once, if it may run there; it stays free to be moved on."""
    if number is None or not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    if number not in allowed or len(allowed) == 1:
        return
    with suppress(OSError):  # a container may have lost the processor meanwhile
        os.sched_setaffinity(0, {number})
    with suppress(OSError):
        os.sched_setaffinity(0, allowed)
