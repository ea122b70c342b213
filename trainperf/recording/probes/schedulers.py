"""Counts how often learning-rate schedulers step, with the updates and micro-batches of the fit.

Under the names `scheduler_steps`, `updates` and `micro_batches` in the run's configuration; of
several schedulers the one that steps most.
"""

from collections.abc import Sequence
from typing import ClassVar

from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft, Recorder


class SchedulersProbe(Probe):
    """Compares the schedulers' own counters with what the loop did meanwhile.

    A scheduler without a `last_epoch`, such as torch's `ChainedScheduler`, tells nothing.
    """

    name = "schedulers"
    facts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, schedulers: Sequence[object]) -> None:
        self._schedulers = schedulers
        self._begun: list[int | None] = []
        self._updates = self._micro_batches = 0

    def attach(self, recorder: Recorder) -> None:
        """Note where each of them stands: a resumed one has stepped before."""
        super().attach(recorder)
        self._begun = [_stepped(scheduler) for scheduler in self._schedulers]

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Count the steps.  Every flush."""
        self._updates += len(drafts)
        self._micro_batches += sum(draft.micro_batches for draft in drafts)

    def config(self) -> dict[str, Scalar]:
        """What was counted so far."""
        now = [_stepped(scheduler) for scheduler in self._schedulers]
        steps = [
            after - before
            for before, after in zip(self._begun, now, strict=False)
            if before is not None and after is not None
        ]
        if not steps or not self._updates:
            return {}
        return {
            "scheduler_steps": max(steps),
            "updates": self._updates,
            "micro_batches": self._micro_batches,
        }


def _stepped(scheduler: object) -> int | None:
    epoch = getattr(scheduler, "last_epoch", None)
    return epoch if isinstance(epoch, int) else None
