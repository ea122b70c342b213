"""Calls of a `DataLoader` that nobody has wrapped, heard where Python tells of them.

From Python 3.12 on `sys.monitoring` says when one function begins and returns, and costs nothing
anywhere else: here the two of PyTorch that make an iterator and hand on its next batch.  No method
is replaced.  An older Python has no such place, and loaders are not heard.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter


TOOLS = (3, 4)
"""Numbers of tools that Python leaves to anybody; debuggers, coverage and profilers have others."""


CALLS = (DataLoader.__iter__.__code__, _BaseDataLoaderIter.__next__.__code__)
"""A loader is asked."""

_END = _MultiProcessingDataLoaderIter._shutdown_workers.__code__  # noqa: SLF001 nothing public is called then
"""The last thing that a loader with workers does: an error follows, and errors are not heard."""


def hear_loaders(
    begins: Callable[..., object], ends: Callable[..., object], undo: ExitStack
) -> None:
    """Have two functions called around the work of every `DataLoader` of the process.

    The second is not called where the work ends with an error, or with the last batch.  Before
    Python 3.12, and where others took every number, neither is.

    Args:
        begins: Called as a loader is asked, in its thread.
        ends: Called as it has answered.
        undo: Leaves nothing behind.
    """
    if sys.version_info >= (3, 12):
        monitoring, events = sys.monitoring, sys.monitoring.events
        tool = next((tool for tool in TOOLS if monitoring.get_tool(tool) is None), None)
        if tool is None:
            return
        monitoring.use_tool_id(tool, "trainperf")
        undo.callback(monitoring.free_tool_id, tool)
        for event, function in ((events.PY_START, begins), (events.PY_RETURN, ends)):
            monitoring.register_callback(tool, event, function)
            undo.callback(monitoring.register_callback, tool, event, None)
        calls = dict.fromkeys(CALLS, events.PY_START | events.PY_RETURN)
        for code, heard in (calls | {_END: events.PY_RETURN}).items():
            monitoring.set_local_events(tool, code, heard)
            undo.callback(monitoring.set_local_events, tool, code, events.NO_EVENTS)
