"""An event loop whose clock jumps to the next timer: no waiting, and exact times."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from support.own_thread import in_own_thread


T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Does not wait, but says for how long it would have."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now."""
        self.waited_s += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """For scenarios without threads."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds that would have been waited."""
        return self._jumping.waited_s


def run_virtually(scenario: Coroutine[Any, Any, T]) -> T:
    """A scenario to its end, in virtual time from 0."""
    loop = VirtualLoop()
    try:
        return in_own_thread(lambda: loop.run_until_complete(scenario))
    finally:
        loop.close()
