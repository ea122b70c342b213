"""Executors for tests, and work for them that other processes can import."""

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from trainperf.core.errors import ConfigError


class Shuffled(Executor):
    """Works when somebody waits, on all that was submitted until then, in an order of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 an order, no secret
        self._waiting: list[Callable[[], None]] = []
        self.most_in_flight = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As any executor."""
        future = _Lazy(self.work)
        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        self.most_in_flight = max(self.most_in_flight, len(self._waiting))
        return future

    def work(self) -> None:
        """Do all that waits."""
        waiting, self._waiting = self._waiting, []
        self._random.shuffle(waiting)
        for work in waiting:
            work()


class _Lazy(Future[Any]):
    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._work()
        return super().result(timeout)


def squared(number: int) -> int:
    """Some work."""
    return number * number


def killed_once(task: tuple[int, str]) -> int:
    """Work during which the system ends the process, the first time that it is tried."""
    number, flag = task
    if number == 5 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return squared(number)


def refused(number: int) -> int:
    """Work that fails at 3 and, sooner, at 7."""
    if number in (3, 7):
        time.sleep(0.2 * (number == 3))
        raise ConfigError(str(number))
    return number
