"""Group of all ranks for live readings: a gloo group of our own, on a thread of our own.

Nothing here can hold up training.  Making a group is a collective, and so is a gather: both happen
on a daemon thread, over a connection of its own to the job's store.  The group is made only when
every rank has come, with torch's class for it and not with `new_group`, whose count of groups must
agree on all ranks.  A gather that is never answered, because a rank hangs or was stopped, keeps the
thread and nobody else; with one in flight the next is not begun, so that all ranks make the same
ones.  A rank that is gone breaks the group for good: the files have everything.
"""

import threading
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.guard import Guard


Vector = npt.NDArray[np.float64]

CONNECT_S, COME_S = 60.0, 600.0
"""How long the ranks may take to connect to each other, and to come at all."""

TIMEOUT_S = 60.0
"""What took longer to be gathered is not shown."""

_FOREVER = timedelta(days=365)
"""Gloo's own time-out breaks a group: ours passes first, and breaks nothing."""

_POLL_S = (0.002, 0.25)
"""Pauses between two looks at a gather in flight: at first, and at most."""


class RankGroup:
    """Gathers a vector of fixed length from all ranks on rank 0, one gather at a time.

    Args:
        rank: Of this process.
        ranks: How many there are.
        length: Of a vector.
        guard: Hears of a fault of ours on the thread.
        store: Opens a connection to where the ranks meet; `None` where there is none.
    """

    name = "live aggregation"

    def __init__(
        self,
        rank: int,
        ranks: int,
        length: int,
        guard: Guard,
        store: "Callable[[], c10d.Store | None] | None" = None,
    ) -> None:
        self._rank, self._ranks = rank, ranks
        self._mine = torch.zeros(length, dtype=torch.float64)
        self._gathered: Vector | None = None
        self._ready = threading.Event()
        """Something is to be sent."""
        self._stop, self._over = threading.Event(), threading.Event()
        self.idle = False
        """Whether a vector can be sent."""
        self.lost = ""
        """Why there is no group any more; empty while it may be there."""
        self.waits = "not every rank has come"
        """What is waited for, where that takes long."""
        self._guard = guard
        self._store = store or _second_connection
        self._thread = threading.Thread(
            target=self._work, name=f"trainperf {self.name}", daemon=True
        )

    def begin(self) -> None:
        """Look for the other ranks; returns at once."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether `begin` was called."""
        return self._thread.ident is not None

    def send(self, vector: Vector) -> None:
        """Gather this; only where the group is `idle`.  Returns at once."""
        self.idle = False
        self._mine.numpy()[:] = vector
        self._ready.set()

    def take(self) -> Vector | None:
        """A row from each rank, once, on rank 0; `None` where none came in time."""
        gathered, self._gathered = self._gathered, None
        return gathered

    def close(self, patience_s: float = 1.0) -> None:
        """Leave the group; a gather in flight has a moment to end, and is left alone then."""
        self._stop.set()
        self._ready.set()
        self._over.wait(patience_s)

    # -- on the thread -------------------------------------------------------------------------

    def _work(self) -> None:
        self._guard.run(self.name, self._serve)
        self.idle = False
        self.lost = self.lost or "it was switched off"
        self._over.set()

    def _serve(self) -> None:
        try:
            group = self._formed()
            while group is not None and not self._stop.is_set():
                self.idle = True
                self._ready.wait()
                self._ready.clear()
                if not self._stop.is_set():
                    self._gather(group)
        except RuntimeError as error:  # torch names the place in its sources first
            what = str(error).split(". ")[0].splitlines()[0].rpartition("] ")[2]
            self.lost = f"a rank, or the job's store, is gone ({what})"
        else:
            self.lost = self.lost or "the fit is over"

    def _formed(self) -> "dist.ProcessGroupGloo | None":
        """The group, once every rank has come."""
        store = self._store()
        if store is None:
            self.lost = "this torch opens no second connection to its store"
            return None
        number = store.add(f"trainperf/aggregations/{self._rank}", 1)
        own = c10d.PrefixStore(f"trainperf/aggregation/{number}", store)
        own.add("come", 1)
        # Who sees all of them first begins to connect: the others had better see it soon.
        deadline, pause = monotonic_ns() + COME_S * 1e9, _POLL_S[0]
        while (come := own.add("come", 0)) < self._ranks:
            if self._stop.wait(pause):
                return None
            pause = min(2 * pause, _POLL_S[1])
            if monotonic_ns() > deadline:
                self.lost = f"{come} of {self._ranks} ranks came in {COME_S:.0f} s"
                return None
        self.waits = ""
        return dist.ProcessGroupGloo(own, self._rank, self._ranks, timedelta(seconds=CONNECT_S))

    def _gather(self, group: "dist.ProcessGroupGloo") -> None:
        begun, pause = monotonic_ns(), _POLL_S[0]
        rows = [torch.empty_like(self._mine) for _ in range(self._ranks)] if not self._rank else []
        options = dist.GatherOptions()
        options.rootRank, options.timeout = 0, _FOREVER
        gather = group.gather  # type: ignore[attr-defined]  # torch's stubs lack it
        work = gather([rows] if rows else [], [self._mine], options)
        while not work.is_completed():
            if self._stop.wait(pause):
                self._leave_alone(work)
            pause = min(2 * pause, _POLL_S[1])
            if monotonic_ns() - begun > TIMEOUT_S * 1e9:
                self.waits = f"a rank is late by more than {TIMEOUT_S:g} s"
        work.wait()  # raises what went wrong
        self.waits = ""
        if rows and monotonic_ns() - begun <= TIMEOUT_S * 1e9:
            self._gathered = torch.stack(rows).numpy()

    def _leave_alone(self, work: "dist.Work") -> None:
        """After the fit: a group with a gather in flight waits for it where it is taken apart.

        So this thread, which owns it, ends with the process and not before.
        """
        deadline = monotonic_ns() + 500_000_000
        while not work.is_completed():
            if monotonic_ns() > deadline:
                self._over.set()
                threading.Event().wait()
            threading.Event().wait(_POLL_S[0])


def _second_connection() -> "c10d.Store | None":
    """To the store of the job: its first one is training's, and a wait of ours would hold it up."""
    default = c10d._get_default_store()  # noqa: SLF001 there is no public way
    clone = getattr(default, "clone", None)
    return None if clone is None else clone()
