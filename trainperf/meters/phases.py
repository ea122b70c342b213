"""Phase times: how much of a steady step goes to each phase."""

from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter


_MEANING = {
    Phase.DATA_WAIT: "blocked in the loader's `next`",
    Phase.H2D: "in the batch transfer call (on a CPU: its hooks, nothing is copied)",
    Phase.FORWARD: "in `training_step`, without the backward it may call itself",
    Phase.BACKWARD: "in backward, from after `on_before_backward` to before `on_after_backward`",
    Phase.OPTIMIZER: "in the optimizer: step, zero_grad, clipping, scaler, scheduler",
    Phase.CALLBACKS: "in hooks of callbacks and of the module",
    Phase.LOOP: "in the framework between the last hook and the next fetch: metrics, logging, "
    "and on several ranks the wait for the others",
    Phase.OTHER: "that no phase brackets",
}


class PhaseTime(Meter):
    """Mean host time of a steady step in one phase, exclusive: nested phases pause their parent.

    The eight of them add up to `step_mean_s`.  On an asynchronous device it is the host's time,
    not the device's: a phase that only enqueues work is short.
    """

    unit = "s"
    measure = Measure.STEP_TIME
    better = "lower"

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.name = f"phase_{phase.label}_s"  # type: ignore[misc]
        self.__doc__ = f"Mean host time of a steady step {_MEANING[phase]}.\n{PhaseTime.__doc__}"

    def observe(self, block: StepBlock) -> Ratio | None:
        """Seconds in the phase over steps."""
        spent = block.total_ns(self.phase)
        return Ratio(spent / 1e9, float(len(block)), len(block))


METERS = tuple(PhaseTime(phase) for phase in PHASES)
