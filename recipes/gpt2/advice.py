"""The next change, as the tool advises it: by measured trials, else by the findings of the report.

A walkthrough has no order of its own.  What was measured in a trial comes before what a finding
expects, findings come in the order of the report, and what is not expected to bring 3 % is left
out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from recipes.gpt2.bounds import account, without
from recipes.gpt2.stages import Stage
from trainperf.analysis.diagnosis.account import Claim
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import at_most
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share


WORTH = 1.03
"""Gain that is worth a stage."""

LEAST_SAVED = 1 / 3
"""Part of what a finding says is lost that its change saves at least: in 19 of 20 scripts of the
corpus it did, none of which is a walkthrough (docs/research/walkthrough.md)."""

Source = Literal["trial", "report", "silence"]
"""Where an expectation comes from; the last: no finding is about the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrial:
    """A trial of a change, as far as advice goes."""

    id: str
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change to try next, and what is expected of it."""

    stage: Stage
    words: str
    """The finding's own words, or why it is tried without one."""
    low: float | None
    """Least gain expected; `None`: it may as well slow the training."""
    high: float | None
    """Largest gain expected; `None` where no bound is known."""
    source: Source
    where: str = ""
    """`file:line` of the code it is about."""


def next_change(
    evidence: Facts,
    trials: Sequence[MeasuredTrial],
    stages: Sequence[Stage],
    *,
    every: bool,
    least: float = WORTH,
) -> Advice | None:
    """The change to try next; `None` where none is worth it.

    Args:
        evidence: Of the run kept last.
        trials: Measured in the same settings.
        stages: That can be tried, in the order in which they are tried where nothing ranks them.
        every: Whether all of them are tried; else those without advice only if they are tempting.
        least: Gain below which an expectation is not worth a stage.
    """
    by_trial = max(_measured(trials, stages, least), key=_middle, default=None)
    if by_trial is not None:
        return by_trial
    # What a trial has measured needs no guess.
    tried = {trial.id for trial in trials}
    guessed = [stage for stage in stages if not tried & set(stage.trials)]
    advised = _advised(evidence, guessed)
    worth = (advice for advice in advised if advice.high is None or _middle(advice) >= least)
    return next(worth, None) or next(_unasked(stages, every=every), None)


def _measured(
    trials: Iterable[MeasuredTrial], stages: Sequence[Stage], least: float
) -> Iterator[Advice]:
    for trial in trials:
        stage = next((stage for stage in stages if trial.id in stage.trials), None)
        if stage is not None and trial.speedup >= least:
            yield Advice(
                stage=stage,
                words=f"trial {trial.id}",
                low=trial.low,
                high=trial.high,
                source="trial",
            )


def _advised(evidence: Facts, stages: Sequence[Stage]) -> Iterator[Advice]:
    """What findings ask for, in the order of the report."""
    for finding in evidence.summary.findings:
        for stage in stages:
            if stage.is_asked_for(finding):
                low, high = _expected(finding, evidence)
                yield Advice(
                    stage=stage,
                    words=f"{finding.title}. {finding.advice}: {finding.action}",
                    low=low,
                    high=high,
                    source="report",
                    where=finding.where.rpartition("site-packages/")[2],
                )


def _expected(finding: Finding, evidence: Facts) -> tuple[float | None, float | None]:
    """From a third of what is lost to the most that the report says, else the law of the step."""
    lost, most = finding.fraction, finding.gain_upper_bound
    if lost is None:
        return None, None
    if most is None:
        step = account(evidence)
        most = at_most(step, Claim(removes_s=lost * step.step_s))
    return without(LEAST_SAVED * lost), most


def _middle(advice: Advice) -> float:
    """The gain in the middle of what is expected, by the time that is left."""
    ends = [end for end in (advice.low, advice.high) if end]
    return len(ends) / sum(1 / end for end in ends) if ends else 1.0


def _unasked(stages: Iterable[Stage], *, every: bool) -> Iterator[Advice]:
    limit = without(LIMITS.notable)
    for stage in stages:
        if every or stage.tempting:
            words = f"no finding asks for it: less than {share(LIMITS.notable)} is to be gained"
            yield Advice(stage=stage, words=words, low=None, high=limit, source="silence")
