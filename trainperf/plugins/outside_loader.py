"""Calls of a `DataLoader` that nobody has wrapped, heard where Python tells of them.

From Python 3.12 on `sys.monitoring` says when one function begins and returns, and costs nothing
anywhere else: here the two of PyTorch that make an iterator and hand on its next batch.  No method
is replaced.  An older Python has no such place, and loaders are not heard.
"""

import sys
from collections.abc import Callable
from traceback import walk_stack
from types import CodeType

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter


TOOLS = (3, 4)
"""Numbers of tools that Python leaves to anybody; debuggers, coverage and profilers have others."""


def _codes(*functions: object) -> tuple[CodeType, ...]:
    """Of those that are written in Python."""
    codes = (getattr(function, "__code__", None) for function in functions)
    return tuple(code for code in codes if code is not None)


_CALLS = _codes(DataLoader.__iter__, _BaseDataLoaderIter.__next__)
"""A loader is asked."""

_ENDS = _codes(getattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", None))
"""The last thing that a loader with workers does: an error follows, and errors are not heard."""


class LoaderCalls:
    """Has two functions called around the work of every `DataLoader` of the process, in its thread.

    The second is not called where the work ends with an error, or with the last batch.

    Args:
        begins: Called as a loader is asked.
        ends: Called as it has answered.
    """

    def __init__(self, begins: Callable[..., object], ends: Callable[..., object]) -> None:
        self.tool: int | None = None
        """Our number; `None` before Python 3.12, and where others took every number."""
        if sys.version_info >= (3, 12):
            free = [tool for tool in TOOLS if sys.monitoring.get_tool(tool) is None]
            if not free or not _CALLS:
                return
            self.tool = free[0]
            events = sys.monitoring.events
            sys.monitoring.use_tool_id(self.tool, "trainperf")
            sys.monitoring.register_callback(self.tool, events.PY_START, begins)
            sys.monitoring.register_callback(self.tool, events.PY_RETURN, ends)
            for code in _CALLS:
                both = events.PY_START | events.PY_RETURN
                sys.monitoring.set_local_events(self.tool, code, both)
            for code in _ENDS:
                sys.monitoring.set_local_events(self.tool, code, events.PY_RETURN)

    def stop(self) -> None:
        """Leave nothing behind.  Safe to call twice."""
        if sys.version_info >= (3, 12) and self.tool is not None:
            tool, self.tool = self.tool, None
            events = sys.monitoring.events
            for code in (*_CALLS, *_ENDS):
                sys.monitoring.set_local_events(tool, code, events.NO_EVENTS)
            for event in (events.PY_START, events.PY_RETURN):
                sys.monitoring.register_callback(tool, event, None)
            sys.monitoring.free_tool_id(tool)


def calls_under_way() -> int:
    """How many calls of loaders go on in this thread, inside each other."""
    stack = walk_stack(sys._getframe())  # noqa: SLF001 documented, and what `inspect` uses
    return sum(frame.f_code in _CALLS for frame, _ in stack)
