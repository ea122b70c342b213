"""Counter of collectives by phase: where in a step ranks may wait for each other.

From the sequence numbers that torch's process groups keep of their own collectives, read when a
phase begins or ends, in a few steps: nothing is wrapped, and no device is waited for.  That a
collective was issued does not say that anybody waited; the times of the ranks do
(`trainperf.analysis.summary.stragglers`).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch.distributed as dist

from trainperf.core.phases import FIRST_GAP, PHASES
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft


FIRST = 4
"""Step before the first one that is counted: DDP and frameworks have set up by then."""
STEPS = 4
"""Counted in a row."""
AGAIN_EVERY = 1000
"""Steps after which it is counted again: what is logged or clipped may change."""

_NO_COUNTS = [0] * len(PHASES)


class CollectivesProbe(Probe):
    """Listens to the timeline in the steps that it counts; a profiler that listens has its place.

    Under the name `collectives` in the run's configuration, e.g. `backward 1, loop 2`: per counted
    step, over all process groups of this rank; `none` where there were none.
    """

    name = "collectives"
    facts: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._groups: list[dist.ProcessGroup] = []
        self._counts = _NO_COUNTS.copy()
        self._step = _NO_COUNTS.copy()
        self._steps = 0
        self._slot = 0
        self._issued = 0
        self._left = 0

    def close(self, draft: Draft) -> None:
        """Begin to count, or go on.  Runs every step."""
        if self._left:
            self._counted()
        elif draft.index % AGAIN_EVERY == FIRST and self.recorder.listener is None:
            self._begin()

    def detach(self) -> None:
        """Listen no longer."""
        self._end()

    def config(self) -> dict[str, Scalar]:
        """Collectives per counted step, of each phase that has any."""
        if not self._steps:
            return {}
        per_phase = (
            f"{phase.label} {self._counts[phase] / self._steps:.3g}"
            for phase in PHASES
            if self._counts[phase]
        )
        return {"collectives": ", ".join(per_phase) or "none"}

    # -- as a listener of the timeline, in the steps that are counted --------------------------

    def entered(self, slot: int) -> None:
        """A phase begins: what was issued before belongs to the one around it."""
        self._count()
        self._slot = slot

    def left(self) -> None:
        """A phase ended."""
        self._count()
        self._slot = self.recorder.slot

    def cleared(self) -> None:
        """All of them have."""
        self.left()

    # -- inside -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._groups = _groups()
        self._left = STEPS if self._groups else 0
        self._step = _NO_COUNTS.copy()
        self._slot, self._issued = self.recorder.slot, _issued(self._groups)
        self.recorder.listener = self if self._left else None

    def _counted(self) -> None:
        """A counted step is over."""
        if self.recorder.listener is not self:  # a profiler took its place, amid the step perhaps
            self._left = 0
            return
        self._count()
        if not self._left:
            return
        self._counts = [a + b for a, b in zip(self._counts, self._step, strict=True)]
        self._step = _NO_COUNTS.copy()
        self._steps += 1
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        if self.recorder.listener is self:
            self.recorder.listener = None
        self._left = 0
        self._groups = []

    def _count(self) -> None:
        try:
            issued = _issued(self._groups)
        except RuntimeError:  # a group is gone: this step is not counted
            self._end()
            return
        if issued != self._issued and self._slot < FIRST_GAP:
            self._step[self._slot] += issued - self._issued
        self._issued = issued


def _groups() -> list[dist.ProcessGroup]:
    """The process groups of this rank that count; all of them where torch lets them be seen."""
    if not (dist.is_available() and dist.is_initialized()):
        return []
    world = getattr(dist.distributed_c10d, "_world", None)
    groups = list(getattr(world, "pg_map", None) or [dist.group.WORLD])
    return [group for group in groups if _counts(group)]


def _counts(group: dist.ProcessGroup) -> bool:
    try:
        _issued([group])
    except (AttributeError, RuntimeError):  # a backend that does not, or a torch that hides it
        return False
    return True


def _issued(groups: Sequence[dist.ProcessGroup]) -> int:
    """Collectives that were issued so far."""
    return sum(
        group._get_sequence_number_for_group()  # type: ignore[attr-defined]  # noqa: SLF001 torch's stubs lack it
        for group in groups
    )
