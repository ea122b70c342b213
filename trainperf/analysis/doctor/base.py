"""Definition of a check: a pure function from a run's evidence to one of four outcomes.

*Unknown* means that nobody looked: the action then says how to look.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Literal

import msgspec

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.operators.base import audited
from trainperf.analysis.summary.loss_parity import Parity
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import as_fast, at_most
from trainperf.core.loop_kind import LoopKind
from trainperf.core.readings import FLOPS_PER_S


Status = Literal["pass", "fail", "not_applicable", "unknown"]

CHECKUP_VERSION = 1

MEASURE_IT = "trainperf run SCRIPT measures the same training for 200 steps"
"""How to learn what a log does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run, and the one it is compared with."""

    evidence: Evidence
    baseline: Evidence | None = None
    parity: Parity | None = None
    """Their losses at equal work; `None` without a baseline."""

    @property
    def summary(self) -> Summary:
        """Of the run itself."""
        return self.evidence.summary

    @property
    def loop(self) -> LoopKind:
        """What its loop is, and calls things."""
        return self.summary.run.loop


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check says."""

    status: Status
    evidence: tuple[str, ...] = ()
    """Numbers, with their units."""
    action: str = ""
    """What to do, in one line; empty where there is nothing to do."""


class Checked(Outcome, frozen=True, kw_only=True):
    """The same with the check's name."""

    id: str
    title: str
    """What it promises."""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of a run."""

    schema: int = CHECKUP_VERSION
    checks: tuple[Checked, ...]

    def number(self, status: Status) -> int:
        """How many checks ended so."""
        return sum(check.status == status for check in self.checks)


Check = Callable[[Case], Outcome]


def passed(*evidence: str) -> Outcome:
    """It is as it should be, because of *evidence*."""
    return Outcome(status="pass", evidence=tuple(filter(None, evidence)))


def failed(action: str, *evidence: str) -> Outcome:
    """It is not, because of *evidence*; *action* mends it."""
    return Outcome(status="fail", evidence=tuple(filter(None, evidence)), action=action)


def not_applicable(why: str) -> Outcome:
    """There is nothing in this run that it could be about."""
    return Outcome(status="not_applicable", evidence=(why,))


def unknown(why: str, action: str) -> Outcome:
    """Nobody looked; *action* looks."""
    return Outcome(status="unknown", evidence=(why,), action=action)


def fails_on(*ids: str, tried: bool = False) -> Callable[[Check], Check]:
    """Decorator: a finding of the rules *ids* fails the check, which does not look again then.

    With *tried* the check is about what their advice brings: a trial of it that was faster fails
    the check first, and a rule whose trials were all equal or slower does not fail it.
    """

    def decorated(check: Check) -> Check:
        @wraps(check)
        def checked(case: Case) -> Outcome:
            if not tried:
                return failed_by(case, ids) or check(case)
            trials = trials_of(case, ids)
            faster = [trial for trial in trials if trial.verdict == "faster"]
            if faster:
                return failed(faster[0].apply or faster[0].title, *map(measured, faster))
            open_ids = tuple(rule for rule in ids if rule not in settled(trials))
            return failed_by(case, open_ids) or check(case)

        return checked

    return decorated


def failed_by(case: Case, ids: tuple[str, ...]) -> Outcome | None:
    """Failed where one of these rules has a finding: a check decides nothing a second time."""
    findings = [finding for finding in case.summary.findings if finding.id in ids]
    if not findings:
        return None
    evidence = [fact for finding in findings for fact in (_claim(finding), *finding.evidence[:2])]
    return failed(findings[0].action, *evidence)


def _claim(finding: Finding) -> str:
    """E.g. `37 % of the step is spent waiting for data: at most 1.58× faster`."""
    where = f" ({finding.where})" if finding.where else ""
    bound = finding.gain_upper_bound
    gain = f": {at_most(bound)}" if bound is not None and bound > 1 else ""
    return f"{finding.title}{where}{gain}"


def trials_of(case: Case, ids: tuple[str, ...]) -> list[TrialResult]:
    """Single changes that were measured in this very training, by the rules *ids* they belong to.

    A trial that failed, or that changed the loss, measured nothing about the same training.
    """
    trials = case.summary.trials
    return [
        trial
        for trial in (trials.trials if trials is not None else ())
        if trial.kind == "change" and trial.counts and not trial.parts and {*ids} & {*trial.rules}
    ]


def settled(trials: Sequence[TrialResult]) -> set[str]:
    """Rules whose advice was tried, and shown to be equal or slower."""
    undecided = {rule for t in trials if t.verdict in ("faster", "undecided") for rule in t.rules}
    return {rule for trial in trials for rule in trial.rules} - undecided


def measured(trial: TrialResult) -> str:
    """E.g. `AMP in bf16 was tried: faster, 1.38× as fast (95 % CI 1.33–1.43)`."""
    speedup, low, high = trial.speedup, trial.low, trial.high
    if speedup is None or low is None or high is None:
        return f"{trial.title} was tried: {trial.verdict}"
    return f"{trial.title} was tried: {trial.verdict}, {as_fast(speedup, low, high)}"


def to_audit(case: Case) -> str:
    """How to look at every operator of one step, in this kind of loop."""
    return f"{case.loop.audit} looks at every operator of one step"


def to_trace(case: Case) -> str:
    """How to record a trace, in this kind of loop."""
    return f"{case.loop.capture} records a trace"


def not_judged(case: Case) -> str:
    """Why rules about operators had nothing to stand on; empty where they had."""
    if audited(case.evidence) is not None:
        return ""
    audit, summary = case.evidence.documents.audit, case.summary
    if audit is None:
        return "no step was audited"
    if case.evidence.light is None:
        return f"the limits of {audit.device_name} are unknown, so no operator has a floor"
    if summary.readings[FLOPS_PER_S].value is None:
        return reason(summary, FLOPS_PER_S)
    return f"too few steady steps: {summary.run.steady_steps}"


def reason(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.reading(name)
    return (reading.reason if reading else None) or "not measured"
