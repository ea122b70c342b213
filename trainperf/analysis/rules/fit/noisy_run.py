"""Rule about runs whose steps vary too much to conclude anything."""

from trainperf.analysis.rules.base import Evidence, phase_fraction
from trainperf.analysis.rules.fit.slow_steps import slow_steps
from trainperf.analysis.rules.host.unnamed_time import unnamed_fraction
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import STEP_IQR_S, STEP_P95_S, STEP_S


OFTEN = 0.2
"""Share of the steps: slow ones that are rarer leave the middle half as it is."""


def noisy_run(evidence: Evidence) -> Finding | None:
    """The middle half of the steady steps lies far apart, and no loader explains it.

    It is no cause and has no gain: it says how much the other numbers are worth.  Where a fifth of
    the step has no name, or a fifth of the steps are slow ones that come back, there is something
    better to do first.

    Wrong where: the steps differ because their batches do, and not because of the machine.
    To confirm: the same training with batches of one size: what stays is the machine's.
    """
    summary = evidence.summary
    step_s, apart_s = summary.value(STEP_S), summary.value(STEP_IQR_S)
    if not is_noisy(summary) or not step_s or apart_s is None or _explained(evidence):
        return None
    last_s = summary.value(STEP_P95_S)
    return Finding(
        id="noisy_run",
        title=f"steps vary widely: their middle half spans {share(apart_s / step_s)} of the median",
        advice="Measure on a quiet machine",
        evidence=(
            f"median {duration(step_s)}, middle half {duration(apart_s)} wide"
            + (f", p95 {duration(last_s)}" if last_s is not None else ""),
            "smaller differences are not significant",
        ),
        action="stop other work on the machine, fix clocks and lengths, run more steps; "
        "batches of unequal length vary like this too",
        confidence="low",
        severity="low",
        confirm="step_iqr_s is below a tenth of step_s",
    )


def is_noisy(summary: Summary) -> bool:
    """Whether steady steps vary so widely that a share of them is less certain, whatever the cause.

    From a quarter of the median on torch.utils.benchmark calls a measurement worthless.  A loader
    with workers brings batches in bursts, and has a rule of its own.
    """
    step_s, apart_s = summary.value(STEP_S), summary.value(STEP_IQR_S)
    if not step_s or apart_s is None or summary.run.steady_steps < LIMITS.steps:
        return False
    waited = phase_fraction(summary, Phase.DATA_WAIT) or 0.0
    return apart_s / step_s >= 0.25 and waited < LIMITS.notable


def _explained(evidence: Evidence) -> bool:
    if (unnamed_fraction(evidence.summary) or 0.0) >= LIMITS.critical:
        return True
    slow = evidence.summary.slow_steps
    often = slow is not None and slow.steps / slow.of_steps >= OFTEN
    return often and slow_steps(evidence) is not None
