"""Does the step wait for its batches, and would more workers help?"""

import math

from trainperf.evidence import Evidence
from trainperf.phases import Phase
from trainperf.results import Finding, Summary
from trainperf.rules.base import (
    LIMITS,
    at_most,
    phase_fraction,
    setting,
    severity,
    value,
    worst,
)
from trainperf.units import duration, share


def data_wait(evidence: Evidence) -> Finding | None:
    """The loader keeps the device waiting.

    Judged by the stall where it is known: a wait that hides behind queued device work costs
    nothing and is no finding.
    """
    summary = evidence.summary
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    step_s = value(summary, "step_mean_s")
    if waited is None or step_s is None:
        return None
    stalled = worst(summary, "data_stall_fraction")
    lost = waited if stalled is None or summary.run.device == "cpu" else min(stalled, waited)
    if lost < LIMITS.notable:
        return None
    cause, action = _remedy(summary, lost, step_s)
    return Finding(
        id="data_wait",
        title=f"{share(lost)} of the step is spent waiting for data{_where(summary)}",
        advice="Fix the loader",
        evidence=(
            f"{duration(waited * step_s)} of {duration(step_s)} a step in the loader's next()",
            *_stall(stalled, summary),
            cause,
        ),
        action=action,
        fraction=lost,
        gain_upper_bound=at_most(lost),
        # Workers share the processor with the model where the model runs on it too.
        confidence="medium" if summary.run.device == "cpu" else "high",
        severity=severity(lost),
    )


def _where(summary: Summary) -> str:
    return " on the rank that waits longest" if len(summary.run.ranks) > 1 else ""


def _stall(stalled: float | None, summary: Summary) -> tuple[str, ...]:
    if stalled is None or summary.run.device == "cpu":
        return ()
    return (f"the device was idle because of it for {share(stalled)} of the step",)


def _remedy(summary: Summary, lost: float, step_s: float) -> tuple[str, str]:
    workers, cpus = setting(summary, "num_workers"), setting(summary, "cpu_count")
    rest = max(1.0 - lost, 1e-3)
    if workers is None:
        return "the loader's settings are not known", "give the DataLoader more workers"
    if workers == 0:
        # Workers only have to make a batch in the time the rest of the step takes.
        needed = _capped(math.ceil(lost / rest), cpus)
        return (
            f"num_workers=0: {duration(lost * step_s)} a step to make batches in this process",
            f"DataLoader(num_workers={needed}, persistent_workers=True)",
        )
    needed = math.ceil(workers / rest)
    if cpus is None or needed <= cpus:
        return (
            f"{workers:.0f} workers are too few or too slow",
            f"DataLoader(num_workers={needed}, persistent_workers=True, prefetch_factor=4)",
        )
    return (
        f"{workers:.0f} workers on {cpus:.0f} CPUs do not keep up",
        "make a sample cheaper: cache or preprocess what __getitem__ and collate_fn compute",
    )


def _capped(needed: int, cpus: float | None) -> int:
    return max(1, needed if cpus is None else min(needed, int(cpus)))
