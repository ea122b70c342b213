"""Phase times: how much of a steady step goes to each phase."""

from functools import partial

from trainperf.core.docstrings import CONFIRM, WRONG
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry


_ABOUT = f"""Mean host time of a steady step {{means}}.

Mean host time of a steady step in one phase, exclusive: nested phases pause their parent.

The eight of them add up to `step_mean_s`.  On an asynchronous device it is the host's time, not the
device's: a phase that only enqueues work is short.

{WRONG}: {{wrong}}
{CONFIRM}: {{confirm}}
"""


def _mean(block: StepBlock, phase: Phase) -> Ratio:
    """Seconds in the phase over steps."""
    return Ratio(block.total_ns(phase) / 1e9, float(len(block)), len(block))


METERS = tuple(
    MeterEntry(
        name=f"phase_{phase.label}_s",
        unit="s",
        about=_ABOUT.format(
            means=phase.about.means, wrong=phase.about.wrong, confirm=phase.about.confirm
        ),
        measure=Measure.STEP_TIME,
        better="lower",
        statistic=partial(_mean, phase=phase),
    )
    for phase in PHASES
)
