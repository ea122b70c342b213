"""Findings and the engine that ranks them: the same for the rules of runs and of traces.

A rule is a pure function from evidence to a `Finding`, or to `None` where it sees nothing wrong or
lacks the data to tell.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict, TypeVar

import msgspec

from trainperf.core.artifacts.trials import TrialVerdict


Level = Literal["high", "medium", "low"]
Scope = Literal["step", "fit"]
Effort = Literal["minutes", "hours", "days"]

Facts = TypeVar("Facts")


class MeasuredGain(msgspec.Struct, frozen=True, kw_only=True):
    """What a change brought where it was tried: `core.artifacts.trials` says how."""

    trial: str
    """Its id."""
    verdict: TrialVerdict
    speedup: float
    low: float
    high: float

    @property
    def gains_nothing(self) -> bool:
        """Whether the change is shown not to be worth making."""
        return self.verdict in ("slower", "equal", "loss differs")


Basis = Literal["estimate", "measured", "scripts", "guess"]
"""What a gain is believed by: the reader's own estimate, a trial in this training, what the change
brought in scripts of the corpus, or `CAUTION` alone."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of one part returns on the work that it takes: a row of the decision table."""

    part: str
    """Id of a finding, or the name of a part that the reader's estimates add."""
    scope: Scope
    """Whether share and gains are of a steady step or of the whole fit."""
    fraction: float | None
    """Share of the scope's time that the part takes; `None` where it is not known."""
    speedup: float | None
    """How many times faster the part itself is believed to get.  `None` without a *gain* or a
    share; with both, the part is believed to go away altogether."""
    gain: float | None
    """How many times faster the scope gets by that; by Amdahl's law where it was not measured.
    `None` where neither a share nor a measurement is known."""
    ceiling: float | None
    """At most so many times faster: the finding's own bound."""
    basis: Basis
    days: float
    """Of work, eight hours each."""
    days_estimated: bool = False
    """Whether the reader said so; else it is what the finding's effort counts as (`DAYS`)."""
    saved_fraction: float | None = None
    """Share of the whole fit's time that is saved; below 0 where it gets slower."""
    return_per_day: float | None = None
    """The same over the days: for comparing changes.  It is above 1 where a change of less than a
    day saves much."""
    urgent: bool = False
    """As in the finding: before all others, whatever it returns."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis: what it is based on, what to do, and what that gains at most."""

    id: str
    title: str
    """The diagnosis in one clause."""
    advice: str
    """What to do first, as an imperative of a few words without a full stop."""
    evidence: tuple[str, ...]
    """Measured numbers, with their units."""
    action: str
    """The change in one line, with the code where there is code to change."""
    fraction: float | None = None
    """Share of the scope's wall time that would be saved if the cause vanished altogether."""
    scope: Scope = "step"
    """Whether that is a share of a steady step or of the whole fit."""
    gain_upper_bound: float | None = None
    """Amdahl's law: the scope gets at most so many times faster; `None` when no bound is known."""
    expected_gain: tuple[float, float] | None = None
    """From and to how many times faster it usually gets, by scripts in which the change was made;
    `None` where no such evidence is known."""
    expected_from: int = 0
    """How many scripts these are."""
    measured_gain: MeasuredGain | None = None
    """What its change brought in this training; `None` where it was not tried."""
    trials: tuple[str, ...] = ()
    """Built-in trials that measure its change or its bound, for `trainperf try --only`; what is in
    capitals stands for a name or a number."""
    confidence: Level = "high"
    severity: Level = "medium"
    effort: Effort = "minutes"
    """What the change takes; what it saves over that is the return on it (`DAYS`)."""
    where: str = ""
    """`file:line` of the code it is about, or a frame of a trace, where one is known."""
    confirm: str = ""
    """How to see that the change helped, in one line."""
    urgent: bool = False
    """Whether it ended the fit, will end it, or spoils what is learned: named before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that several rules share, as shares of a step; a rule's own limits are in its file."""

    worth: float = 0.05
    """Least share of a traced step worth a finding: a trace shows it directly."""
    notable: float = 0.10
    """Warn from here on (TraceML warns at 10 % of the step)."""
    critical: float = 0.20
    """Severe from here on (TraceML's critical band)."""
    host_bound: float = 0.50
    """Share of the steps, not of a step."""
    steps: int = 20
    """Fewer steady steps support no diagnosis."""
    trifle: float = 0.01
    """What matters to nobody."""
    regular: float = 0.80
    """Of steps, pairs or differences: what is so in general is so in so many of them."""


LIMITS = Limits()

CAUTION = 0.5
"""Part of the share lost that a change saves as far as ranking goes, where nothing shows more."""

COLD = 3.0
"""A call of Python takes at most so many times longer where the caches were emptied meanwhile."""

REFILL_BYTES = 20_000_000
REFILL_S = REFILL_BYTES / 1e10
"""What a step loses at most by cold caches: reading 20 MB of code and objects at 10 GB/s."""

DAYS: dict[Effort, float] = {"minutes": 1 / 8, "hours": 6 / 8, "days": 3.0}
"""Days of work that an effort counts as, with the run that proves it: round figures."""


def amdahl(fraction: float, speedup: float = math.inf) -> float | None:
    """Amdahl's law, 1 / ((1 - p) + p / s): how many times faster a whole gets by one of its parts.

    E.g. of 40 % that get 4 times faster: 1 / (0.6 + 0.1) = 1.43; were they gone, 1 / 0.6 = 1.67.

    Args:
        fraction: Share of the part in the time of the whole, p.
        speedup: How many times faster the part gets, s; above 0.  By default it vanishes.

    Returns:
        The gain; `None` where nothing would be left.
    """
    left = 1 - fraction + fraction / speedup
    return 1 / left if left > 0 else None


def severity(fraction: float) -> Level:
    """How much a share of the step matters."""
    if fraction >= LIMITS.critical:
        return "high"
    return "medium" if fraction >= LIMITS.notable else "low"


class Costs(TypedDict):
    """The fields of a finding that follow from the share of its scope that is lost."""

    fraction: float | None
    gain_upper_bound: float | None
    severity: Level
    confidence: Level
    scope: Scope


def costs(lost: float, *, confidence: Level = "high", scope: Scope = "step") -> Costs:
    """`Finding(**costs(lost), …)`: the share itself, how sure it is, Amdahl's bound, severity."""
    return Costs(
        fraction=lost,
        gain_upper_bound=amdahl(lost),
        severity=severity(lost),
        confidence=confidence,
        scope=scope,
    )


def findings_of(
    rules: Iterable[Callable[[Facts], Finding | None]], facts: Facts
) -> tuple[Finding, ...]:
    """What all rules find in the same facts, in the order of the rules."""
    return tuple(finding for rule in rules if (finding := rule(facts)) is not None)


def ranked(findings: Iterable[Finding], steps_fraction: float = 1.0) -> tuple[Finding, ...]:
    """Urgent findings first, then by expected gain.

    Gains are compared as shares of the whole fit that are saved: what was measured, else the middle
    of the expected range, or half of what is lost where there is none.  What was tried and gains
    nothing comes last.  A finding without a bound comes after those that
    lose a tenth of their scope, and before those that lose less; one of low severity comes last.

    Args:
        findings: In any order; those that rank alike keep it.
        steps_fraction: Share of the fit that steps take.
    """
    return tuple(sorted(findings, key=lambda finding: _rank(finding, steps_fraction)))


def _rank(finding: Finding, steps_fraction: float) -> tuple[bool, int, float]:
    """Urgency, a class, and the place in it: smaller is earlier."""
    later, tried = not finding.urgent, finding.measured_gain
    if tried is not None:
        if tried.gains_nothing:
            return later, 4, 0.0
        notable = tried.verdict == "faster"
    elif finding.fraction is None:
        low, high = finding.severity == "low", finding.severity == "high"
        return (later, 3, 0.0) if low else (later, 1, float(not high))
    else:
        notable = finding.fraction >= LIMITS.notable
    of_fit = saving(finding) * (1.0 if finding.scope == "fit" else steps_fraction)
    return later, 0 if notable else 2, -of_fit


def saving(finding: Finding) -> float:
    """Share of its scope's time that the change saves, or probably does."""
    if finding.measured_gain is not None:
        return 1 - 1 / finding.measured_gain.speedup
    if finding.expected_gain is None:
        return CAUTION * (finding.fraction or 0.0)
    return sum(1 - 1 / gain for gain in finding.expected_gain) / 2
