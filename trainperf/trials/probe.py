"""Takes a training through its trials: the conductor's plan runs as steps close.

Steps with a change, and those that settle after it, are tagged `trial`: they are kept, and no
statistic counts them.  The blocks without a change are steps like any other.
"""

from typing import ClassVar

import torch

from trainperf.accelerators import accelerator_of
from trainperf.core.phases import Gap, Tag
from trainperf.recording.probes.base import Batch, Probe
from trainperf.recording.recorder import Draft
from trainperf.trials.conductor import Conductor, Steps
from trainperf.trials.results import Ran
from trainperf.trials.training import Training


_EPOCH_ENDS = (int(Gap.EPOCH_BOUNDARY), int(Gap.SHUTDOWN))
"""What a step that no batch follows at once is closed in."""


class TrialsProbe(Probe):
    """Asks the conductor after each block of steps what comes next.

    It belongs behind all other probes: what they do as a step closes is part of the step.

    Args:
        conductor: Whose plan it is.
        training: That is tried.
    """

    name: ClassVar[str] = "trials"

    def __init__(self, conductor: Conductor, training: Training) -> None:
        self._conductor = conductor
        self._training = training
        self._accelerator = accelerator_of(training.device)
        self._plan: Steps[None] | None = None
        self._left = 0
        self._ran: list[Ran] = []
        self._loss: object = None

    def begin(self) -> None:
        """The plan begins with the first step."""
        self._plan = self._conductor.plan()
        self._left = next(self._plan)

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Keep the loss of the last micro-batch."""
        del batch
        if self._conductor.reads_loss:
            self._loss = loss.get("loss") if isinstance(loss, dict) else loss

    def close(self, draft: Draft) -> None:
        """Count the step; at the end of a block, ask what comes next.  Runs every step."""
        plan = self._plan
        if plan is None:
            return
        if not self._conductor.untouched:
            draft.tags |= Tag.TRIAL
        self._left -= 1
        if not self._left and self._accelerator.asynchronous:
            # What is still queued there is part of this block, and of its last step; the process
            # ends with the trials: it is nobody's training.
            self._accelerator.synchronize()
            self.recorder.prolong(draft)
        self._training.step_ended()
        if self._left >= 0:
            self._ran.append(Ran(ns=sum(draft.host_ns), loss=_value(self._loss)))
        self._loss = None
        # Nothing is switched at an epoch's end: validation may follow, or what comes after the fit.
        if self._left > 0 or self.recorder.ground in _EPOCH_ENDS:
            return
        ran, self._ran = self._ran, []
        try:
            self._left = plan.send(ran)
        except StopIteration:
            self._plan = None
            self._training.end()

    def detach(self) -> None:
        """The fit ended, perhaps amid a trial, whose change is unmade."""
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.close()
            self._training.agreement.leave()


def _value(loss: object) -> float | None:
    """The number in a loss; steps whose losses are compared are timed by nobody."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(loss.detach())
    return loss if isinstance(loss, float) else None
