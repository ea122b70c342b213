"""Findings: causes in words, each with its changes and one gain, in one order."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.diagnosis import causes_of, ordinary
from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.changes import BY_ID
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import about, at_most, gone_s
from trainperf.analysis.diagnosis.tried import measured_change, with_measured
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.choice import first_that_holds
from trainperf.core.findings import (
    DAYS,
    ENOUGH,
    ChangeGain,
    Finding,
    Level,
    Ordinary,
    ranked,
    saving,
    severity,
)


def diagnose(account: StepAccount, facts: Facts) -> tuple[tuple[Finding, ...], Ordinary | None]:
    """The findings in the order in which to act on them, and what nobody owns."""
    causes = causes_of(account, facts)
    trials = () if facts.documents.trials is None else facts.documents.trials.trials
    causal = [finding_of(cause, account, facts, trials) for cause in causes]
    further = measured_change(causal, trials)
    return ranked([*causal, *further], account.steps_share), ordinary(account, causes, facts)


_LESS_SURE: dict[Level, Level] = {"high": "medium", "medium": "low", "low": "low"}


def finding_of(
    cause: Cause,
    account: StepAccount,
    facts: Facts,
    trials: Sequence[TrialResult] = (),
) -> Finding:
    """A cause with what its changes gain, the one to make first.

    Args:
        cause: What a detector found.
        account: The whole step, with what others claim.
        facts: Of the run; where its steps differ widely all shares of them are less certain.
        trials: Measured in this training.
    """
    claim = cause.claim
    fraction = None if claim is None else _fraction(claim, account)
    finding = Finding(
        id=cause.id,
        title=cause.title,
        advice="",
        evidence=cause.evidence,
        action="",
        fraction=fraction,
        scope="step" if claim is None else claim.scope,
        confidence=_LESS_SURE[cause.confidence] if claim and facts.noisy else cause.confidence,
        severity=cause.severity or severity(fraction or 0.0),
        where=cause.where,
        called_at=cause.called_at,
        urgent=cause.urgent,
        resource="" if claim is None else _resource(claim),
        changes=tuple(_gain(use, cause, account, facts) for use in cause.changes),
    )
    return _first(with_measured(finding, trials))


def _gain(use: Use, cause: Cause, account: StepAccount, facts: Facts) -> ChangeGain:
    """What a change would bring, by the law."""
    change = BY_ID[use.change]
    advice, action, confirm = change.worded(facts.loop, use.values, facts.run.backend)
    likely = most = None
    claim = cause.claim
    if claim is not None and _fraction(claim, account):
        realises = change.realises if use.realises is None else use.realises
        if use.step_s is not None and account.step_s:
            after_s = account.step_s - (realises or 1.0) * (account.step_s - use.step_s)
            likely = account.step_s / after_s
        elif realises is not None:
            likely = about(account, claim, realises)
        if cause.bounded and change.bounded:
            at_best = Claim(removes_s=account.step_s - (use.least_s or 0.0), threads=claim.threads)
            most = at_most(account, claim if use.least_s is None else at_best)
    return ChangeGain(
        id=change.id,
        advice=advice,
        action=action,
        effort=change.effort,
        about=likely,
        at_most=most if most is None or likely is None else max(most, likely),
        trials=change.trials,
        confirm=confirm,
        costs=change.costs,
        option=change.option,
    )


def _fraction(claim: Claim, account: StepAccount) -> float:
    """Share of its scope that would be gone without it, with the threads that it feeds."""
    return account.part_of(claim) if claim.pauses_s else account.share(gone_s(account, claim))


def _resource(claim: Claim) -> str:
    """Whose seconds they are."""
    return first_that_holds(
        ("fit", claim.pauses_s),
        ("operators", claim.regions or claim.shrinks),
        ("communication", "communication_s" in claim.device),
        ("loader", "data_wait" in claim.owns_s),
        ("host", True),
    )


def _first(finding: Finding) -> Finding:
    """The finding with its best change as its advice: the most for its effort, of those that do.

    They are alternatives: one that leaves much of what another saves is not done with.  Of those
    that save enough and are as easy, one that costs nothing comes first.
    """
    best = max(map(_saving, finding.changes))
    changes = tuple(sorted(finding.changes, key=lambda change: _place(change, best)))
    first = changes[0]
    measured = first.measured
    return msgspec.structs.replace(
        finding,
        changes=changes,
        advice=first.advice,
        action=first.action,
        effort=first.effort,
        gain=first.about if measured is None else measured.speedup,
        gain_upper_bound=first.at_most,
        measured_gain=measured,
        trials=tuple(dict.fromkeys(trial for change in changes for trial in change.trials)),
        confirm=first.confirm,
    )


def _place(change: ChangeGain, best: float) -> tuple[bool, bool, float, bool, float]:
    """Smaller is earlier; what was tried and gains is enough, and what gains nothing is last."""
    useless = change.measured is not None and change.measured.gains_nothing
    saves, costs = _saving(change), bool(best and change.costs)
    partial = change.measured is None and saves < ENOUGH * best
    counts_as = best if saves >= ENOUGH * best and not costs else saves
    return useless, partial, -counts_as / DAYS[change.effort], costs, -saves


def _saving(change: ChangeGain) -> float:
    """Share of the time that it saves, as it was measured or by the law; 0 where nothing tells."""
    return saving((change.about if change.measured is None else change.measured.speedup) or 1.0)
