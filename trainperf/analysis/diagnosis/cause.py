"""Causes: which seconds of an account somebody owns, where, and by what evidence.

A detector is a pure function `detect(account, facts) -> Cause | None` of some thirty lines.  It
says which seconds its cause removes and which changes of the catalogue would do that, and nothing
of gains, of order, or of other detectors: what these have claimed is gone from the account it sees.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.findings import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A change of the catalogue, for this training."""

    change: str
    """Its id."""
    values: Mapping[str, object] = field(default_factory=dict)
    """For the places in its words."""
    realises: float | None = None
    """Share of the removed seconds that it saves with these values; by default the catalogue's."""
    step_s: float | None = None
    """The step with all of it realised, where the law says more than that seconds are gone."""
    least_s: float | None = None
    """The step with it at its best; by default without what the cause removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why time is lost, or a training is broken."""

    id: str
    title: str
    """The diagnosis in one clause."""
    evidence: tuple[str, ...]
    """Measured numbers, with their units."""
    changes: tuple[Use, ...]
    claim: Claim | None = None
    """`None` where it costs no time, or nobody knows how much."""
    where: str = ""
    """`file:line` of the code it is about, where one is known."""
    called_at: str = ""
    """`file:line` of the user's code that called it, if that is a library's."""
    confidence: Level = "high"
    severity: Level | None = None
    """`None` follows from what it removes."""
    urgent: bool = False
    """Whether it ended the fit, will end it, or spoils what is learned."""
    bounded: bool = True
    """Whether its claim holds all that it costs: what is modelled or unseen may be more."""


Detector = Callable[[StepAccount, Facts], Cause | None]


def worth(least: float | None = None) -> Callable[[Detector], Detector]:
    """A detector whose cause is worth a word where it removes so much of the step, or of the fit.

    By default as much as the account says.
    """

    def of(detect: Detector) -> Detector:
        @wraps(detect)
        def detector(account: StepAccount, facts: Facts) -> Cause | None:
            cause = detect(account, facts)
            part = 0.0 if cause is None or cause.claim is None else account.part_of(cause.claim)
            return cause if part >= (account.least if least is None else least) else None

        return detector

    return of
