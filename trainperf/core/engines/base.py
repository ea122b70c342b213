"""An engine: somebody else's executor, and how tasks are given to it and their results taken."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar


Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where work is done."""

    executor: Executor
    """Python's, or that of the package whose scheduler it is."""
    workers: int
    """Tasks that run at the same time."""

    @property
    def ahead(self) -> int:
        """Tasks in flight: their results are in memory until those before them are taken."""
        return 2 * self.workers + 2


def in_order(
    engine: Engine | None, work: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result]:
    """The result of each task, in the order of tasks, a bounded number of them in flight.

    What is reduced in a fixed order is the same, byte for byte, whoever computes it and whoever is
    ready first.  If the executor breaks, as when the system ends one of its processes, what is left
    is done in this process.

    Args:
        engine: Where the work is done; in this process without one.
        work: A function of a module, so that another process can call it.
        tasks: What it is called with.

    Raises:
        Exception: What *work* raised, for the first task that failed.
    """
    left = iter(tasks)
    if engine is not None:
        begun: deque[Task] = deque()
        flying: deque[Future[Result]] = deque()
        try:
            while True:
                for task in islice(left, engine.ahead - len(begun)):
                    begun.append(task)
                    flying.append(engine.executor.submit(work, task))
                if not flying:
                    return
                result = flying[0].result()
                flying.popleft()
                begun.popleft()
                yield result
        except BrokenExecutor:
            left = iter([*begun, *left])
        finally:
            for future in flying:
                future.cancel()
    yield from map(work, left)
