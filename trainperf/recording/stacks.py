"""Stack of a running thread, copied: no frame is held, and what it lets go of is gone."""

import gc
import sys
from types import CodeType, FrameType
from typing import TypeAlias


Stack: TypeAlias = list[tuple[CodeType, int | None]]
"""Code and line of each frame, the innermost first; a line is `None` between two of them."""


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
