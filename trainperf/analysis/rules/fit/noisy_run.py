"""Rule about runs whose steps vary too much to conclude anything."""

from trainperf.analysis.rules.base import Evidence, phase_fraction
from trainperf.analysis.rules.fit.slow_steps import slow_steps
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import duration, share
from trainperf.core.phases import Phase
from trainperf.core.readings import STEP_IQR_S, STEP_P95_S, STEP_S


def noisy_run(evidence: Evidence) -> Finding | None:
    """The middle half of the steady steps lies far apart, and no loader explains it.

    It is no cause and has no gain: it says how much the other numbers are worth.  Where a fifth of
    the step has no name, or slow steps come back, there is something better to do first.
    """
    summary = evidence.summary
    step_s, apart_s = summary.value(STEP_S), summary.value(STEP_IQR_S)
    if not step_s or apart_s is None or summary.run.steady_steps < LIMITS.steps:
        return None
    waited = phase_fraction(summary, Phase.DATA_WAIT) or 0.0
    # From a quarter of the median on torch.utils.benchmark calls a measurement worthless.  A loader
    # with workers brings batches in bursts, and has a rule of its own.
    if apart_s / step_s < 0.25 or waited >= LIMITS.notable:
        return None
    if _unexplained(evidence):
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


def _unexplained(evidence: Evidence) -> bool:
    other = phase_fraction(evidence.summary, Phase.OTHER) or 0.0
    return other >= LIMITS.critical or slow_steps(evidence) is not None
