"""Definition of a check: questions to a run, the first of which that has an answer decides.

A check decides nothing that the diagnosis has decided: what it is about is a list of causes, and
it fails where one of them was found.  Its other questions, most of them data, say whether there is
anything to look at, whether anybody looked, and what was seen.  *Unknown* means that nobody looked:
the action then says how to look.

Words of an answer are a text with places (`{facts.…}`, `{loop.…}`, `{case.…}`), or a function that
makes them of a case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.of_run import account_of
from trainperf.analysis.summary.loss_parity import Parity
from trainperf.core.choice import first_that_holds
from trainperf.core.docstrings import documented
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import at_most
from trainperf.core.loop_kind import imported_from
from trainperf.core.readings import FLOPS_PER_S


Status = Literal["pass", "fail", "not_applicable", "unknown"]

CHECKUP_VERSION = 1

MEASURE_IT = "trainperf run SCRIPT measures the same training for 200 steps"
"""How to learn what a log does not hold."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run, and the one it is compared with."""

    facts: Facts
    """With its findings."""
    baseline: Facts | None = None
    parity: Parity | None = None
    """Their losses at equal work; `None` without a baseline."""

    @cached_property
    def account(self) -> StepAccount:
        """Its mean steady step."""
        return account_of(self.facts)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check says."""

    id: str = ""
    """Of the check."""
    title: str = ""
    """What it promises."""
    status: Status
    evidence: tuple[str, ...] = ()
    """Numbers, with their units."""
    action: str = ""
    """What to do, in one line; empty where there is nothing to do."""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of a run."""

    schema: int = CHECKUP_VERSION
    checks: tuple[Outcome, ...]

    def number(self, status: Status) -> int:
        """How many checks ended so."""
        return sum(check.status == status for check in self.checks)


Words = str | Callable[[Case], str]
Question = Callable[[Case], Outcome | None]
"""`None` where it has no answer, so that the next one is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What should hold before anybody trusts a number or changes a line."""

    id: str
    about: str
    """Its documentation: the first paragraph is what it promises."""
    causes: tuple[str, ...] = ()
    """Ids of the findings that fail it."""
    first: Sequence[Question] = ()
    """Asked before them: why it is not about this run, or what was measured of it."""
    looks: Sequence[Question]
    """Asked after them, the last of which has an answer for every run."""
    of_training: bool = False
    """Whether an inference loop is spared it, as it is about an update."""

    @property
    def title(self) -> str:
        """What it promises."""
        return documented(self.about).means.rstrip(".")

    def outcome(self, case: Case) -> Outcome:
        """Its outcome: that of the first question which has one."""
        causes = [
            finding
            for finding in case.facts.summary.findings
            if finding.id in self.causes and not _in_vain(finding)
        ]
        questions = (*self.first, lambda _: failed_by(causes), *self.looks)
        answers = (question(case) for question in questions)
        first = next(outcome for outcome in answers if outcome is not None)
        # No option of a monitor adds anything to a log.
        unseen = imported(case) and first.status == "unknown" and "--baseline" not in first.action
        return msgspec.structs.replace(
            first, id=self.id, title=self.title, action=MEASURE_IT if unseen else first.action
        )


When = Callable[[Case], object]


def answer(status: Status, *facts: Words, action: Words = "", when: When = bool) -> Question:
    """A question with one answer, *when* that holds; by default it holds for every run.

    Args:
        status: What the check says then.
        facts: Evidence; what is empty for a run is left out.
        action: What to do, or who looks.
        when: Whether it is so.
    """

    def question(case: Case) -> Outcome | None:
        if not when(case):
            return None
        evidence = tuple(filter(None, (in_words(each, case) for each in facts)))
        return Outcome(status=status, evidence=evidence, action=in_words(action, case))

    return question


def unfinished(why: Words, action: Words, when: When) -> tuple[Question, Question]:
    """It is too short *when* that holds: a run that goes on may still have what it lacks."""
    return (
        answer(
            "unknown",
            why,
            action=action,
            when=lambda case: case.facts.run.state == "running" and when(case),
        ),
        answer("fail", why, action=action, when=when),
    )


def in_words(words: Words, case: Case) -> str:
    """Of this run."""
    places = {"case": case, "facts": case.facts, "loop": case.facts.loop}
    return words(case) if callable(words) else words.format(**places)


def only(words: Words, when: When) -> Words:
    """Words where that holds; else there is nothing to say."""
    return lambda case: in_words(words, case) if when(case) else ""


def measured(name: str, action: Words) -> tuple[Question, Question]:
    """Whether there is a reading; if not, why not.  *Action* measures it."""
    return (
        answer(
            "not_applicable",
            lambda case: reason(case.facts, name).removeprefix(_NOT_APPLICABLE),
            when=lambda case: reason(case.facts, name).startswith(_NOT_APPLICABLE),
        ),
        answer("unknown", lambda case: reason(case.facts, name), action=action, when=missing(name)),
    )


_NOT_APPLICABLE = "not applicable: "


def reason(facts: Facts, name: str) -> str:
    """Why a reading has no value."""
    reading = facts.summary.reading(name)
    return (reading.reason if reading else None) or "not measured"


def missing(*names: str) -> When:
    """Whether a run has none of these readings."""
    return lambda case: all(case.facts.value(name) is None for name in names)


def shown(name: str, words: str, unit: Callable[[float], str]) -> Words:
    """A reading in words, e.g. `{} per step`; empty where it was not measured."""
    return lambda case: (
        "" if (value := case.facts.value(name)) is None else words.format(unit(value))
    )


AUDIT = "{loop.audit} looks at every operator of one step"


def _unseen(case: Case) -> str:
    """Why no operators are laid over the steady steps."""
    facts = case.facts
    return first_that_holds(
        (reason(facts, FLOPS_PER_S), facts.value(FLOPS_PER_S) is None),
        ("the chip's limits are unknown: no operator has a floor", facts.light is None),
        (f"too few steady steps: {facts.run.steady_steps}", True),
    )


operators_seen = answer(
    "unknown", _unseen, action=AUDIT, when=lambda case: not case.account.regions
)
"""Whether one step was audited, and its operators can be laid over the steady ones."""


def failed_by(findings: Sequence[Finding]) -> Outcome | None:
    """Failed where there is one of these, with its numbers, its place and its remedy."""
    facts = [fact for finding in findings for fact in (_claim(finding), *finding.evidence[:2])]
    return (
        Outcome(status="fail", evidence=tuple(facts), action=findings[0].action)
        if findings
        else None
    )


def _claim(finding: Finding) -> str:
    """E.g. `37 % of the step is spent waiting for data: at most 1.58× faster`."""
    most, where = finding.gain_upper_bound, f" ({finding.where})" if finding.where else ""
    gain = f": {at_most(most)}" if most is not None and most > 1 else ""
    return f"{finding.title}{where}{gain}"


def _in_vain(finding: Finding) -> bool:
    """Whether changes of it were tried in this training, and gained nothing."""
    tried = [change.measured for change in finding.changes if change.measured is not None]
    return bool(tried) and all(each.gains_nothing for each in tried)


def on_host(case: Case) -> bool:
    """Whether the model computes on the CPU."""
    return case.facts.run.device == "cpu"


def imported(case: Case) -> bool:
    """Whether the run was read from a log of another tool."""
    return bool(imported_from(case.facts.settings))
