"""Agreement of ranks on what they decide trials by, over their store and without a collective.

A rank whose trials were switched off would not enter a collective: the others would hang in it, or
it would be matched with one of the training's own.  Over the store a rank that leaves, or does not
answer, ends the trials of the others.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainperf.core.machine.clocks import monotonic_ns


PATIENCE_NS = 300_000_000_000
"""How long the slowest rank may take, e.g. if it alone writes a checkpoint between two steps.

Half of what NCCL waits by default: a rank that has gone on waits for the others in a collective.
"""

_POLL_S = 0.001


class RanksApartError(Exception):
    """A rank has left, or has not answered: it may have no trials any more."""


class Agreement:
    """Exchanges values with the other ranks, the k-th of this rank with their k-th.

    Args:
        store: Where all ranks meet.
        rank: Of this process.
        ranks: How many there are.
        patience_ns: How long an answer may take.
    """

    def __init__(
        self, store: c10d.Store, rank: int, ranks: int, patience_ns: int = PATIENCE_NS
    ) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._patience_ns = patience_ns
        self._fit = store.add(f"trainperf/trials/{rank}", 1)
        self._number = 0
        self._left = f"trainperf/agreed/{self._fit}/left"

    @classmethod
    def of_job(cls) -> "Agreement":
        """Of the ranks of the process group."""
        store = c10d._get_default_store()  # noqa: SLF001 there is no public way
        return cls(store, dist.get_rank(), dist.get_world_size())

    def largest(self, value: float) -> float:
        """The largest of a value over all ranks.

        Raises:
            RanksApartError: A rank has left, or has not answered in time.
        """
        return max(map(float, self._exchanged(repr(value))))

    def in_common(self, names: Sequence[str]) -> list[str]:
        """The names that every rank has, in the order of rank 0.

        Raises:
            RanksApartError: A rank has left, or has not answered in time.
        """
        first, *others = (json.loads(answer) for answer in self._exchanged(json.dumps(names)))
        return [name for name in first if all(name in other for other in others)]

    def leave(self) -> None:
        """Answer no more: who waits for this rank need not do so any longer."""
        with suppress(RuntimeError):  # the store is gone, e.g. with rank 0's process
            self._store.set(f"{self._left}/{self._rank}", "")
            self._store.set(self._left, "")

    def _exchanged(self, value: str) -> list[str]:
        """What every rank has answered to the same question, by rank."""
        self._number += 1
        place = f"trainperf/agreed/{self._fit}/{self._number}"
        self._store.set(f"{place}/{self._rank}", value)
        answers = [f"{place}/{rank}" for rank in range(self._ranks)]
        deadline_ns = monotonic_ns() + self._patience_ns
        while not self._store.check(answers):
            over = monotonic_ns() > deadline_ns
            if over or self._store.check([self._left]):
                gone = [rank for rank in range(self._ranks) if over or self._has_left(rank)]
                # It may have answered before it left.
                gone = [rank for rank in gone if not self._store.check([answers[rank]])]
                if gone:
                    raise RanksApartError(f"no answer from rank {', '.join(map(str, gone))}")
            time.sleep(_POLL_S)
        return [self._store.get(key).decode() for key in answers]

    def _has_left(self, rank: int) -> bool:
        return bool(self._store.check([f"{self._left}/{rank}"]))
