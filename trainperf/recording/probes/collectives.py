"""Counter of collectives by phase: where in a step ranks may wait for each other.

From the sequence numbers that torch's process groups keep of their own collectives, read when a
phase begins or ends, in a few steps: nothing is wrapped, and no device is waited for.  That a
collective was issued does not say that anybody waited; the times of the ranks do
(`trainperf.analysis.summary.stragglers`).
"""

from collections.abc import Sequence

import torch.distributed as dist

from trainperf.core.phases import FIRST_GAP, PHASES
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft, Recorder


FIRST = 4
"""Step before the first one that is counted: DDP and frameworks have set up by then."""
STEPS = 4
"""Counted in a row."""
AGAIN_EVERY = 1000
"""Steps after which it is counted again: what is logged or clipped may change."""


class CollectivesProbe(Probe):
    """Counts in the steps that it has the timeline for; a profiler that listens has its place.

    Under the name `collectives` in the run's configuration, e.g. `backward 1, loop 2`: per counted
    step, over all process groups of this rank; `none` where there were none.
    """

    name = "collectives"

    def __init__(self) -> None:
        self._step: _StepCount | None = None
        """The step that is being counted."""
        self._counted = [0] * len(PHASES)
        self._steps = 0

    def close(self, draft: Draft) -> None:
        """The step is over, and the next may be counted.  Runs every step."""
        if self._step is not None:
            self._end(self._step)
        if FIRST + STEPS > draft.index % AGAIN_EVERY >= FIRST and self.recorder.listener is None:
            groups = _groups()
            if groups:
                self._step = self.recorder.listener = _StepCount(self.recorder, groups)

    def detach(self) -> None:
        """Listen no longer."""
        if self.recorder.listener is self._step:
            self.recorder.listener = None

    def config(self) -> dict[str, Scalar]:
        """Collectives per counted step, of each phase that has any."""
        if not self._steps:
            return {}
        per_phase = (
            f"{phase.label} {self._counted[phase] / self._steps:.3g}"
            for phase in PHASES
            if self._counted[phase]
        )
        return {"collectives": ", ".join(per_phase) or "none"}

    def _end(self, step: "_StepCount") -> None:
        # A profiler may have taken its place, amid the step perhaps.
        if self.recorder.listener is step and step.count():
            self._counted = [a + b for a, b in zip(self._counted, step.issued, strict=True)]
            self._steps += 1
        self.detach()
        self._step = None


class _StepCount:
    """Collectives of one step by phase, counted as a listener of the timeline."""

    def __init__(self, recorder: Recorder, groups: Sequence[dist.ProcessGroup]) -> None:
        self.issued = [0] * len(PHASES)
        self._recorder = recorder
        self._groups = groups
        self._slot = recorder.slot
        self._before = _issued(groups)

    def entered(self, slot: int) -> None:
        """A phase begins: what was issued before belongs to the one around it."""
        self.count()
        self._slot = slot

    def left(self) -> None:
        """A phase ended."""
        self.entered(self._recorder.slot)

    cleared = left

    def count(self) -> bool:
        """What was issued since the last count is the phase's; false if that is not known."""
        try:
            issued = _issued(self._groups)
        except RuntimeError:  # a group is gone: this step is not counted
            self._recorder.listener = None
            return False
        if self._slot < FIRST_GAP:
            self.issued[self._slot] += issued - self._before
        self._before = issued
        return True


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
