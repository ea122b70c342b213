"""Findings and the engine that ranks them: the same for the rules of runs and of traces.

A rule is a pure function from evidence to a `Finding`, or to `None` where it sees nothing wrong or
lacks the data to tell.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from trainperf.core.artifacts.trials import TrialVerdict
from trainperf.core.choice import first_that_holds


Level = Literal["high", "medium", "low"]
Scope = Literal["step", "fit", "script"]
"""What shares and gains are of: a steady step, the fit, or all that the process did."""
Effort = Literal["minutes", "hours", "days"]


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


class ChangeGain(msgspec.Struct, frozen=True, kw_only=True):
    """One change that would remove a cause, or a part of it, and what it brings."""

    id: str
    """In the catalogue of changes."""
    advice: str
    """What to do, as an imperative of a few words without a full stop."""
    action: str
    """The change in one line, with the code where there is code to change."""
    effort: Effort
    about: float | None = None
    """How many times faster the scope probably gets; `None` where nothing tells."""
    at_most: float | None = None
    measured: MeasuredGain | None = None
    """What it brought in this training; `None` where it was not tried."""
    trials: tuple[str, ...] = ()
    """Built-in trials that measure it."""
    confirm: str = ""
    """How to see that it helped, in one line."""
    costs: str = ""
    """What it may cost: memory, accuracy, another loss."""
    option: bool = False
    """Whether it trains something else, or in fewer digits: what it saves is no waste."""


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
    """What that is a share of."""
    gain_upper_bound: float | None = None
    """The scope gets at most so many times faster by it, by the law of the step or a ceiling that
    was tried; `None` when no bound is known."""
    gain: float | None = None
    """How many times faster it probably gets by the first of its changes: what was measured, else
    by the law of the step; `None` where nothing tells."""
    measured_gain: MeasuredGain | None = None
    """What its change brought in this training; `None` where it was not tried."""
    saved_fraction: float | None = None
    """Share of the whole fit's time that the gain saves; below 0 where it gets slower."""
    return_per_day: float | None = None
    """The same over the days of work that its effort counts as, eight hours each: for comparing
    changes.  It is above 1 where a change of less than a day saves much."""
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
    called_at: str = ""
    """`file:line` of the user's code that called *where*, if that is a library's."""
    resource: str = ""
    """Whose seconds it is about: `loader`, `operators`, `host`, `communication`, `fit`; empty where
    it is about none."""
    changes: tuple[ChangeGain, ...] = ()
    """All that would remove it, the one that it advises first."""

    @property
    def option(self) -> bool:
        """Whether all that would remove it trains something else: it is no waste."""
        return bool(self.changes) and all(change.option for change in self.changes)

    @property
    def small(self) -> bool:
        """Whether it saves less than a tenth of its step, fit or script."""
        return self.gain is not None and saving(self.gain) < LIMITS.notable


class Ordinary(msgspec.Struct, frozen=True, kw_only=True):
    """Computing of a step that no waste owns: it is what the model asks for."""

    fraction: float
    """Share of the step."""
    of_light: float | None
    """How much of it the chip would need at its best: 0.38 is 38 % of its speed of light; `None`
    without an audit, or where the chip's limits are not known."""
    look: str
    """How to see more of it; empty where everything was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that several detectors share, as shares of a step; others are beside theirs."""

    worth: float = 0.05
    """Least share of a traced step worth a finding: a trace shows it directly."""
    notable: float = 0.10
    """Warn from here on (TraceML warns at 10 % of the step)."""
    critical: float = 0.20
    """Severe from here on (TraceML's critical band)."""
    mostly: float = 0.50
    """Of the steps, of the time or of a phase: from here on it is so in most of it."""
    steps: int = 20
    """Fewer steady steps support no diagnosis."""
    trifle: float = 0.01
    """What matters to nobody."""
    regular: float = 0.80
    """Of steps, pairs or differences: what is so in general is so in so many of them."""


LIMITS = Limits()

COLD = 3.0
"""A call of Python takes at most so many times longer where the caches were emptied meanwhile."""

REFILL_BYTES = 20_000_000
REFILL_S = REFILL_BYTES / 1e10
"""What a step loses at most by cold caches: reading 20 MB of code and objects at 10 GB/s."""

ENOUGH = 0.75
"""Of what the best change of a cause saves: an easier change that saves so much comes first.  So
with causes, where the best of them saves most of the fit."""

DAYS: dict[Effort, float] = {"minutes": 1 / 8, "hours": 6 / 8, "days": 3.0}
"""Days of work that an effort counts as, with the run that proves it: round figures."""


def severity(fraction: float) -> Level:
    """How much a share of the step matters."""
    return first_that_holds(
        ("high", fraction >= LIMITS.critical),
        ("medium", fraction >= LIMITS.notable),
        ("low", True),
    )


def ranked(findings: Iterable[Finding], steps_fraction: float = 1.0) -> tuple[Finding, ...]:
    """Urgent findings first, then by what they probably save per day of work, which each is given.

    Where one saves most of the fit, those that leave much of that come after it, however easy they
    are; options come after waste, and small gains after large ones.  What was tried and gains
    nothing comes last.  A finding whose gain nobody knows comes after those that save a twentieth
    of the fit, and before those that save less; one of low severity comes last.

    Args:
        findings: In any order; those that rank alike keep it.
        steps_fraction: Share of the fit that steps take.
    """
    returned = [_with_return(finding, steps_fraction) for finding in findings]
    best = max((finding.saved_fraction or 0.0 for finding in returned), default=0.0)
    enough = ENOUGH * best if best >= LIMITS.mostly else 0.0
    return tuple(sorted(returned, key=lambda finding: _place(finding, enough)))


def _with_return(finding: Finding, steps_fraction: float) -> Finding:
    """With what it saves of the fit, and per day of the work that it takes.

    E.g. the step gets 1.25 times faster in minutes, an eighth of a day, and steps are 90 % of the
    fit: 20 % of a step, 18 % of the fit, 144 % per day of work.
    """
    if finding.gain is None:
        return finding
    saved = saving(finding.gain) * (steps_fraction if finding.scope == "step" else 1.0)
    per_day = saved / DAYS[finding.effort]
    return msgspec.structs.replace(finding, saved_fraction=saved, return_per_day=per_day)


def _place(finding: Finding, enough: float) -> tuple[bool, int, int, float]:
    """Urgency, a group, the place in it, and the return: smaller is earlier."""
    tried, saved = finding.measured_gain, finding.saved_fraction
    unknown, partial = saved is None, finding.option or (saved or 0.0) < enough
    group, place = first_that_holds(
        ((4, 0), tried is not None and tried.gains_nothing),
        ((3, 0), unknown and finding.severity == "low"),
        ((1, int(finding.severity != "high")), unknown),
        ((2, 0), (saved or 0.0) < LIMITS.worth),
        ((0, 2), finding.small),
        ((0, int(partial)), True),
    )
    return not finding.urgent, group, place, 0.0 if group == 4 else -(finding.return_per_day or 0.0)


def saving(gain: float) -> float:
    """Share of the time that a gain saves: a quarter where it is 1.33 times as fast."""
    return 1 - 1 / gain
