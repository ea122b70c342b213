"""Count of how often functions have returned, where Python tells of it.

From Python 3.12 on `sys.monitoring` does, of these functions alone: no other code is slowed down,
and nothing is replaced.
"""

import sys
from collections.abc import Sequence
from types import CodeType


_TOOLS = (3, 4)
"""Numbers of tools that Python leaves to anybody; debuggers, coverage and profilers have others."""


class Returns:
    """Counts in this process from now on, also in what it forks, each process for itself.

    Args:
        codes: Of the functions.  One that ends with an error has not returned.
    """

    def __init__(self, codes: Sequence[CodeType]) -> None:
        self.number: int | None = None
        """`None` before Python 3.12, and where others took every number of a tool."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            free = next((tool for tool in _TOOLS if monitoring.get_tool(tool) is None), None)
            if free is not None:
                self.number, returned = 0, monitoring.events.PY_RETURN
                monitoring.use_tool_id(free, "trainperf")
                monitoring.register_callback(free, returned, self._returned)
                for code in codes:
                    monitoring.set_local_events(free, code, returned)

    def _returned(self, *_: object) -> None:
        self.number = 1 + (self.number or 0)
