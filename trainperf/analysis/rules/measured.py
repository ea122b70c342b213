"""Measured gains: what trials say of the changes that findings advise."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.rules.gains import kind_of
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import Finding, MeasuredGain
from trainperf.core.formatting.units import as_fast, at_most, plural


def with_measured_gain(finding: Finding, trials: Sequence[TrialResult], run: str = "") -> Finding:
    """The finding with what its change brought, and a bound by what its ceiling brought.

    Of several changes it is the fastest that still learns the same.  One that gains nothing counts
    only if it is of the same kind as the finding's own advice: that fewer workers are slower says
    nothing of a cheaper dataset.

    Args:
        finding: Of any rule.
        trials: In the same training.
        run: Where they were made, if not in the run of the finding.
    """
    if finding.scope == "fit":
        return finding
    own = [trial for trial in trials if finding.id in trial.rules and not trial.parts]
    for ceiling in own:
        if ceiling.kind == "ceiling" and ceiling.counts:
            finding = _bounded(finding, ceiling)
    changes = [trial for trial in own if trial.kind == "change" and trial.speedup is not None]
    if not changes:
        return finding
    best = max(changes, key=lambda trial: (trial.verdict == "faster", trial.counts, _speed(trial)))
    outcome = sentence(best, run)
    if not any(outcome in each for each in finding.evidence):
        finding = msgspec.structs.replace(finding, evidence=(*finding.evidence, outcome))
    if not best.resolved:
        return finding
    if best.verdict != "faster" and kind_of(best.apply) != kind_of(finding.action):
        return finding
    finding = msgspec.structs.replace(finding, measured_gain=gain_of(best))
    return _advising(finding, best) if best.verdict == "faster" and best.apply else finding


def refuted(trials: Sequence[TrialResult], kind: str, run: str = "") -> str:
    """What says that changes of a kind, e.g. `workers`, do not help here; empty where nothing does.

    Some were tried, and each was shown to gain next to nothing, if not less.

    Args:
        trials: In the same training.
        kind: How the kinds of their lines begin: see `kind_of`.
        run: Where they were made, if not in the run of the finding.
    """
    own = [
        trial
        for trial in trials
        if trial.kind == "change" and kind_of(trial.apply).startswith(kind) and trial.resolved
    ]
    useless = all(trial.little_to_gain for trial in own)
    return "; ".join(sentence(trial, run) for trial in own) if useless else ""


def advice_of(trial: TrialResult) -> str:
    """E.g. `Switch to AMP in bf16`."""
    return f"Switch to {trial.title}"


def _advising(finding: Finding, trial: TrialResult) -> Finding:
    """The finding with the very change that was measured for its advice."""
    same = kind_of(trial.apply) == kind_of(finding.action)
    return msgspec.structs.replace(
        finding,
        advice=advice_of(trial),
        action=line_to_write(trial),
        where=finding.where if same else "",
        effort="minutes",
        confidence="high",
    )


def gain_of(trial: TrialResult) -> MeasuredGain:
    """The same in a finding."""
    return MeasuredGain(
        trial=trial.id,
        verdict=trial.verdict,
        speedup=_speed(trial),
        low=trial.low or 0.0,
        high=trial.high or 0.0,
    )


def sentence(trial: TrialResult, run: str = "") -> str:
    """E.g. `AMP in bf16 was tried: faster, 1.38× as fast (95 % CI 1.33–1.43), 16 pairs …`."""
    of, gain = f" in {run}" if run else "", gain_of(trial)
    speed = f", {as_fast(gain.speedup, gain.low, gain.high)}" if trial.resolved else ""
    pairs = plural(trial.pairs, "pair")
    return f"{trial.title} was tried{of}: {trial.verdict}{speed}, {pairs} of blocks"


def line_to_write(trial: TrialResult) -> str:
    """E.g. `precision="bf16-mixed" (Trainer(…))`."""
    return f"{trial.apply} ({trial.where})" if trial.apply and trial.where else trial.apply


def _bounded(finding: Finding, ceiling: TrialResult) -> Finding:
    """Bounded by what leaving out the whole of its cause brought, where that is tighter."""
    most = max(ceiling.high or 1.0, 1.0)
    bound = finding.gain_upper_bound
    if bound is None or bound <= most:
        return finding
    lost = 1 - 1 / most
    usual = finding.expected_gain
    return msgspec.structs.replace(
        finding,
        gain_upper_bound=most,
        fraction=None if finding.fraction is None else min(finding.fraction, lost),
        expected_gain=None if usual is None or usual[1] > most else usual,
        evidence=(*finding.evidence, f"{ceiling.title} instead: {at_most(most)}, measured"),
    )


def _speed(trial: TrialResult) -> float:
    return trial.speedup or 1.0
