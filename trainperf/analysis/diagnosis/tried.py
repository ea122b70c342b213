"""Measured gains: what trials in this training say of the changes that findings advise."""

from collections.abc import Sequence

import msgspec

from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import ChangeGain, Finding, MeasuredGain, saving, severity
from trainperf.core.formatting.units import as_fast, at_most, plural


def with_measured(finding: Finding, trials: Sequence[TrialResult]) -> Finding:
    """The finding with what its changes brought, and bounds by what its ceilings brought.

    A trial of a change that it does not list is one more of its changes, if it was faster.

    Args:
        finding: Of any detector.
        trials: In the same training.
    """
    own = [
        trial
        for trial in trials
        if finding.scope == "step" and finding.id in trial.rules and not trial.parts
    ]
    ceilings = [trial for trial in own if trial.kind == "ceiling" and trial.counts]
    compared = [t for t in own if t.kind == "change" and t.speedup is not None]
    resolved = [trial for trial in compared if trial.resolved]
    most = _ceiling(finding, ceilings)
    changes = [_bounded(_measured(change, resolved), most) for change in finding.changes]
    listed = {change.measured.trial for change in changes if change.measured is not None}
    faster = [t for t in resolved if t.verdict == "faster" and t.id not in listed and t.apply]
    return msgspec.structs.replace(
        finding,
        changes=(*changes, *map(_change, faster)),
        fraction=finding.fraction
        if finding.fraction is None or most is None
        else min(finding.fraction, saving(most)),
        evidence=(
            *finding.evidence,
            *map(sentence, compared),
            *(f"{each.title} instead: {at_most(_most(each))}, measured" for each in ceilings),
        ),
        confidence="high" if resolved else finding.confidence,
    )


def _ceiling(finding: Finding, ceilings: Sequence[TrialResult]) -> float | None:
    """What it brought at most to leave out the whole of a cause.

    Where only parts were left out, one at a time, e.g. each of several callbacks, it is what the
    part that matters most brought: a change is to one of them.
    """
    named = tuple(
        trial.removesuffix("NAME")
        for change in finding.changes
        for trial in change.trials
        if trial.endswith("_NAME")
    )
    parts = [_most(trial) for trial in ceilings if trial.id.startswith(named)]
    wholes = [_most(trial) for trial in ceilings if not trial.id.startswith(named)]
    return min(wholes, default=max(parts, default=None))


def _most(trial: TrialResult) -> float:
    return max(trial.high or 1.0, 1.0)


def _measured(change: ChangeGain, trials: Sequence[TrialResult]) -> ChangeGain:
    """With the best of the trials that measured it."""
    stems = [trial.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ").rstrip("_") for trial in change.trials]
    own = [trial for trial in trials if any(trial.id.startswith(stem) for stem in stems)]
    if not own:
        return change
    best = max(own, key=lambda trial: (trial.verdict == "faster", trial.speedup or 1.0))
    action = line_to_write(best) if best.verdict == "faster" and best.apply else change.action
    return msgspec.structs.replace(change, measured=gain_of(best), action=action)


def _bounded(change: ChangeGain, most: float | None) -> ChangeGain:
    """Bounded by what leaving out the whole of its cause brought, where that is tighter."""
    if most is None or change.at_most is None or change.at_most <= most:
        return change
    likely = None if change.about is None else min(change.about, most)
    return msgspec.structs.replace(change, at_most=most, about=likely)


def _change(trial: TrialResult) -> ChangeGain:
    """A change of which nothing but its trial is known."""
    gain = gain_of(trial)
    return ChangeGain(
        id=trial.id,
        advice=f"Switch to {trial.title}",
        action=line_to_write(trial),
        effort="minutes",
        about=gain.speedup,
        at_most=gain.high,
        measured=gain,
        trials=(trial.id,),
        confirm="trainperf prove with the script as it is and with this line",
    )


def measured_change(
    findings: Sequence[Finding], trials: Sequence[TrialResult]
) -> tuple[Finding, ...]:
    """A change that was tried and was faster, though no cause was seen that it mends.

    The gain is the measured one, in this training; further ones are in the evidence.

    Wrong where: the training of later epochs has other batches than those it was tried on.
    To confirm: make the change; `trainperf prove` with the training before it and after it.
    """
    advised = {finding.id for finding in findings}
    faster = [
        trial
        for trial in trials
        if trial.kind == "change"
        and trial.verdict == "faster"
        and trial.speedup
        and not trial.parts
        and not advised.intersection(trial.rules)
    ]
    if not faster:
        return ()
    best = max(faster, key=lambda trial: trial.speedup or 1.0)
    change, gain = _change(best), gain_of(best)
    return (
        Finding(
            id="measured_change",
            title=f"{best.title} makes this training faster",
            advice=change.advice,
            evidence=tuple(map(sentence, faster)),
            action=change.action,
            fraction=saving(gain.high),
            gain=gain.speedup,
            gain_upper_bound=gain.high,
            measured_gain=gain,
            severity=severity(saving(gain.speedup)),
            confirm=change.confirm,
            changes=(change,),
            trials=change.trials,
        ),
    )


def gain_of(trial: TrialResult) -> MeasuredGain:
    """The same in a finding."""
    return MeasuredGain(
        trial=trial.id,
        verdict=trial.verdict,
        speedup=trial.speedup or 1.0,
        low=trial.low or 0.0,
        high=trial.high or 0.0,
    )


def sentence(trial: TrialResult) -> str:
    """E.g. `AMP in bf16 was tried: faster, 1.38× as fast (95 % CI 1.33–1.43), 16 pairs …`."""
    gain = gain_of(trial)
    speed = f", {as_fast(gain.speedup, gain.low, gain.high)}" if trial.resolved else ""
    return (
        f"{trial.title} was tried: {trial.verdict}{speed}, {plural(trial.pairs, 'pair')} of blocks"
    )


def line_to_write(trial: TrialResult) -> str:
    """E.g. `precision="bf16-mixed" (Trainer(…))`."""
    return f"{trial.apply} ({trial.where})" if trial.apply and trial.where else trial.apply
