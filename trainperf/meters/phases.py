"""Phase times: how much of a steady step goes to each phase."""

import inspect

from trainperf.core.docstrings import CONFIRM, WRONG
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, Meter


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
        about, all_phases = phase.about, inspect.cleandoc(PhaseTime.__doc__ or "")
        self.__doc__ = (
            f"Mean host time of a steady step {about.means}.\n\n{all_phases}\n\n"
            f"{WRONG}: {about.wrong}\n{CONFIRM}: {about.confirm}"
        )

    def observe(self, block: StepBlock) -> Ratio | None:
        """Seconds in the phase over steps."""
        spent = block.total_ns(self.phase)
        return Ratio(spent / 1e9, float(len(block)), len(block))


METERS = tuple(PhaseTime(phase) for phase in PHASES)
