"""Memory that malloc keeps while a task works, in a worker that returns it at each release.

Dask starts its workers with `MALLOC_TRIM_THRESHOLD_=65536`: glibc's malloc then gives every larger
piece back to the system when it is released, and the system clears each page when it is needed
again.  Reading makes arrays of that size and releases them, thousands per file.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar


Task = TypeVar("Task")
Result = TypeVar("Result")

TRIM_THRESHOLD = "MALLOC_TRIM_THRESHOLD_"
MMAP_THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
"""Variables from which malloc takes its settings when a process starts."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of the settings in malloc.h."""

_KEPT_BYTES = 16 << 20
"""At most so much unused memory is kept for each thread while a task works."""

_LARGE_BYTES = 4 << 20
"""Larger pieces are the system's own business, as they are without any setting."""

_GLIBC_MMAP_BYTES = 128 << 10
"""The other setting's value where only the first one is set."""


def keeping_memory(work: Callable[[Task], Result], task: Task) -> Result:
    """What *work* makes of the *task*, with released memory kept until it is done."""
    with memory_kept():
        return work(task)


@contextmanager
def memory_kept() -> Iterator[bool]:
    """Keep released memory for the next request; afterwards return it, and as much as before.

    Does nothing, and gives `False`, where malloc is another one or was not told to return memory.
    """
    threshold = os.environ.get(TRIM_THRESHOLD, "")
    libc = ctypes.CDLL(None) if sys.platform == "linux" and threshold.isdecimal() else None
    mallopt, malloc_trim = (getattr(libc, name, None) for name in ("mallopt", "malloc_trim"))
    if mallopt is None or malloc_trim is None or int(threshold) >= _KEPT_BYTES:
        yield False
        return
    mapped = os.environ.get(MMAP_THRESHOLD, "")
    before = {
        _M_TRIM_THRESHOLD: int(threshold),
        _M_MMAP_THRESHOLD: int(mapped) if mapped.isdecimal() else _GLIBC_MMAP_BYTES,
    }
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, max(_LARGE_BYTES, before[_M_MMAP_THRESHOLD]))
    try:
        yield True
    finally:
        for setting, value in before.items():
            mallopt(setting, value)
        malloc_trim(0)
