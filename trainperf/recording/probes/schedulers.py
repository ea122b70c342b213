"""Counts how often learning-rate schedulers step, with the updates and micro-batches of the fit.

Under the names `scheduler_steps`, `updates` and `micro_batches` in the run's configuration; of
several schedulers the one that steps most.
"""

from collections.abc import Sequence

from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


class SchedulersProbe(Probe):
    """Compares the schedulers' own counters with what the loop did meanwhile.

    A scheduler without a `last_epoch`, such as torch's `ChainedScheduler`, tells nothing.
    """

    name = "schedulers"

    def __init__(self, schedulers: Sequence[object]) -> None:
        self._schedulers = schedulers
        self._updates = self._micro_batches = 0

    def begin(self) -> None:
        """Note where each of them stands: a resumed one has stepped before."""
        self._begun = self._stepped()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Count the steps.  Every flush."""
        closed = [draft for draft in drafts if draft.host_ns]  # one that goes on comes again
        self._updates += len(closed)
        self._micro_batches += sum(draft.micro_batches for draft in closed)

    def config(self) -> dict[str, Scalar]:
        """What was counted so far."""
        steps = [
            after - before
            for before, after in zip(self._begun, self._stepped(), strict=False)
            if isinstance(before, int) and isinstance(after, int)
        ]
        if not steps or not self._updates:
            return {}
        return {
            "scheduler_steps": max(steps),
            "updates": self._updates,
            "micro_batches": self._micro_batches,
        }

    def _stepped(self) -> list[object]:
        return [getattr(scheduler, "last_epoch", None) for scheduler in self._schedulers]
