"""Functions whose returns are counted, where Python tells of them."""

import os
import sys

import pytest

from trainperf.recording.returns import Returns


def first(number: int) -> int:
    """Fails where it is given nothing."""
    return 1 // number


def second() -> int:
    """Counted by nobody."""
    return 2


def test_returns_of_these_functions_are_counted_and_errors_are_not() -> None:
    """A forked process goes on counting for itself; before Python 3.12 there is no number."""
    returns = Returns([first.__code__])
    for number in (1, 2, 0, 3):
        second()
        if number:
            first(number)
        else:
            with pytest.raises(ZeroDivisionError):
                first(number)
    if sys.version_info < (3, 12):
        assert returns.number is None
        return
    assert returns.number == 3
    child = os.fork()
    if not child:
        first(1)
        os._exit(returns.number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert returns.number == 3
    for tool in (3, 4):
        if sys.monitoring.get_tool(tool) == "trainperf":
            sys.monitoring.set_local_events(tool, first.__code__, 0)
            sys.monitoring.free_tool_id(tool)
