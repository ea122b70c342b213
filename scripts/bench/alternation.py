"""Two loops in one process that take turns: a block of steps of one, a block of the other.

Whatever disturbs the machine disturbs neighbouring blocks alike, so the ratio of a pair of blocks
says more than two long runs, one after the other, could.  Only one loop runs at any time.  Loops
that cannot be under way together run one after the other, and should be short.
"""

import threading
from collections.abc import Callable

from scripts.bench.harness import Cost, CostClock


WARM_STEPS = 60
"""Steps before the first block: past the warm-up, the first answer and the first flush."""


class Turns:
    """Lets one of two threads run at a time; nobody waits for one that is *over*."""

    def __init__(self, *, over: bool = False) -> None:
        self._may_run = (threading.Semaphore(1), threading.Semaphore(0))
        self._over = [over, over]

    def wait(self, me: int) -> None:
        """Wait for my turn."""
        self._may_run[me].acquire()

    def swap(self, me: int) -> None:
        """Let the other one run, and wait until it is my turn again."""
        if not self._over[1 - me]:
            self._may_run[1 - me].release()
            self.wait(me)

    def leave(self, me: int) -> None:
        """I am through: the other one need not give way any more."""
        self._over[me] = True
        self._may_run[1 - me].release()


class Stopwatch:
    """Sits in a loop: reads the CPU clocks where a block begins and ends, and gives way there."""

    def __init__(self, turns: Turns, me: int, blocks: int, block_steps: int) -> None:
        self._turns = turns
        self._me = me
        self._block_steps = block_steps
        self._begun: CostClock | None = None
        self.needed = WARM_STEPS + blocks * block_steps + 1
        """Steps the loop has to run."""
        self.costs: list[Cost] = []

    def at(self, step: int) -> None:
        """Called in every step, with and without anything attached."""
        if step < WARM_STEPS or (step - WARM_STEPS) % self._block_steps:
            return
        if self._begun is not None:
            self.costs.append(self._begun.cost(self._block_steps))
        self._turns.swap(self._me)
        self._begun = CostClock()


Loop = Callable[[Stopwatch], object]


def alternate(loops: tuple[Loop, Loop], blocks: int, block_steps: int) -> list[tuple[Cost, Cost]]:
    """Run two loops in turns; the costs of their blocks, pair by pair."""
    turns = Turns()
    watches = [Stopwatch(turns, me, blocks, block_steps) for me in range(2)]
    failures: list[BaseException] = []

    def run(me: int) -> None:
        turns.wait(me)
        try:
            loops[me](watches[me])
        except BaseException as failure:  # noqa: BLE001 raised again below, in the main thread
            failures.append(failure)
        finally:
            turns.leave(me)

    threads = [threading.Thread(target=run, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return list(zip(watches[0].costs, watches[1].costs, strict=True))


def one_after_the_other(
    loops: tuple[Loop, Loop], blocks: int, block_steps: int
) -> list[tuple[Cost, Cost]]:
    """Run two loops in sequence; the costs of their blocks, pair by pair."""
    costs: list[list[Cost]] = []
    for loop in loops:
        watch = Stopwatch(Turns(over=True), 0, blocks, block_steps)
        loop(watch)
        costs.append(watch.costs)
    return list(zip(*costs, strict=True))
