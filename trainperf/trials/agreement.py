"""Agreement of ranks on what they decide trials by, over their store and without a collective.

A rank whose trials were switched off would not enter a collective: the others would hang in it, or
it would be matched with one of the training's own.  Over the store a rank that leaves, or does not
answer, ends the trials of the others.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainperf.recording.schedule import comes_true


PATIENCE_NS = 300_000_000_000
"""How long the slowest rank may take, e.g. if it alone writes a checkpoint between two steps.

Half of what NCCL waits by default: a rank that has gone on waits for the others in a collective.
"""

_POLL_S = 0.001
_GONE = "gone"
"""Answer of a rank that answers no more."""


class RanksApartError(Exception):
    """A rank has left, or has not answered: it may have no trials any more."""


class Agreement:
    """Exchanges values with the other ranks, the k-th of this rank with their k-th.

    Args:
        store: Where all ranks meet; `None` of one rank alone.
        rank: Of this process.
        ranks: How many there are.
        patience_ns: How long an answer may take.
    """

    def __init__(
        self, store: c10d.Store | None, rank: int, ranks: int, patience_ns: int = PATIENCE_NS
    ) -> None:
        self._store, self._rank, self.ranks = store, rank, ranks
        self._patience_ns = patience_ns
        self._fit = 0 if store is None else store.add(f"trainperf/trials/{rank}", 1)
        self._number = 0

    @classmethod
    def of_job(cls) -> "Agreement":
        """Of the ranks of the process group, or of this process alone."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return cls(None, 0, 1)
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
        """Answer no more: who waits for this rank's next answer need not do so any longer."""
        self._number += 1
        # The store may be gone, e.g. with rank 0's process.
        with suppress(RuntimeError):
            if self._store is not None:
                self._store.set(self._place(self._rank), _GONE)

    def _exchanged(self, value: str) -> list[str]:
        """What every rank has answered to the same question, by rank."""
        if self._store is None:
            return [value]
        self._number += 1
        places = [self._place(rank) for rank in range(self.ranks)]
        self._store.set(places[self._rank], value)
        comes_true(partial(self._store.check, places), self._patience_ns, _POLL_S)
        answers = [
            self._store.get(place).decode() if self._store.check([place]) else _GONE
            for place in places
        ]
        gone = [str(rank) for rank, answer in enumerate(answers) if answer == _GONE]
        if gone:
            raise RanksApartError(f"no answer from rank {', '.join(gone)}")
        return answers

    def _place(self, rank: int) -> str:
        """Where a rank's answer to the current question is."""
        return f"trainperf/agreed/{self._fit}/{self._number}/{rank}"
