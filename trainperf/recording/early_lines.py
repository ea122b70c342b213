"""Samples of the main thread before there is a fit: what a script does ahead of its first step.

A thread looks at the stack five times a second, ever more seldom the longer it takes, in processes
that `trainperf run` has launched, from the moment in which torch is loaded.  Frames are copied,
none is held: what the script lets go of is gone.
"""

import gc
import multiprocessing
import sys
import threading
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from trainperf.core.machine.clocks import HostClock, monotonic_ns


EVERY_NS = 200_000_000
"""Between two looks, in the beginning."""
LOOKS = 500
"""From so many on they get rarer, so that the last ones are a five-hundredth of all the time apart:
in a day there are some 3,000."""
_DEEPEST = 200

Stack: TypeAlias = list[tuple[CodeType, int | None]]
"""Code and line of each frame, the innermost first; a line is `None` between two of them."""


class EarlySample(NamedTuple):
    """A look at the main thread."""

    stack: Stack
    at_ns: int
    """Host time."""
    stands_for_us: int


class EarlyLines:
    """Samples the main thread from `start` to `end`.

    Args:
        clock: Of the pauses.
    """

    def __init__(self, clock: HostClock = monotonic_ns) -> None:
        self._clock = clock
        self._samples: list[EarlySample] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; does nothing in a process that another Python process has made for its own work.

        A worker of a loader would sample itself for as long as it lives.
        """
        if self._thread is None and multiprocessing.parent_process() is None:
            self._thread = threading.Thread(
                target=self._look_until_stopped, name="trainperf early lines", daemon=True
            )
            self._thread.start()

    def end(self) -> tuple[EarlySample, ...]:
        """Stop; what was seen, once."""
        thread, self._thread = self._thread, None
        if thread is None:
            return ()
        self._stop.set()
        thread.join(timeout=1.0)
        samples, self._samples = tuple(self._samples), []
        return samples

    def _look_until_stopped(self) -> None:
        watched = threading.main_thread().ident
        began_ns = last_ns = self._clock()
        while not self._stop.wait(max(EVERY_NS, (last_ns - began_ns) // LOOKS) / 1e9):
            stack = running_in(watched or 0)[1][:_DEEPEST]
            now_ns = self._clock()
            if stack:
                stands_for_us = (now_ns - last_ns) // 1000
                self._samples.append(EarlySample(stack, now_ns, stands_for_us))
            last_ns = now_ns


def running_in(thread: int) -> tuple[FrameType | None, Stack]:
    """What a thread is running: its innermost frame, and its stack.

    Python 3.11 makes the objects of another thread's frames as they are asked for, and may collect
    garbage amid that: a finalizer then lets the thread go on, and what is read is gone.
    """
    collects = sys.version_info[:2] == (3, 11) and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 the documented name of it
        return frame, stack_of(frame)
    finally:
        if collects:
            gc.enable()


def stack_of(frame: FrameType | None) -> Stack:
    """The stack that ends in this frame, without what it holds.

    Empty without a frame, and where one that is being left has lost its code.
    """
    stack: Stack = []
    while frame is not None:
        code = getattr(frame, "f_code", None)
        if code is None:
            return []
        stack.append((code, frame.f_lineno))
        frame = frame.f_back
    return stack


EARLY_LINES = EarlyLines()
"""Of this process."""
