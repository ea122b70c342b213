"""The two clocks of a comparison, the one that the change moved, and the gate on both."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from trainperf.comparison.results import (
    ClockChange,
    Comparison,
    Decision,
    GateVerdict,
)
from trainperf.core.stats.verdict import SpeedVerdict


_MOVED = frozenset({"faster", "slower"})

_DECISIONS: Mapping[str, Decision] = {
    **dict.fromkeys(("faster", "pass"), "keep"),
    **dict.fromkeys(("undecided", "not comparable"), "cannot tell"),
}
"""What to do by the verdict, or by that of the gate; discard what is not listed."""


def headline(
    clocks: Sequence[ClockChange], *, whole: bool = True
) -> tuple[SpeedVerdict, ClockChange]:
    """The verdict on both clocks, and the clock that stands for it: the one that moved.

    The fit comes first, because it is what a training costs.  Where it is not *whole*, because what
    comes back has not, the steady step does if both moved the same way: that one will stand.
    *Equal* has to hold for both.
    """
    moved = [clock for clock in clocks if clock.verdict in _MOVED]
    if moved:
        agreed = len({clock.verdict for clock in moved}) == 1
        decides = moved[-1] if agreed and not whole else moved[0]
        return decides.verdict, decides
    undecided = [clock for clock in clocks if clock.verdict == "undecided"]
    return ("undecided", undecided[0]) if undecided else ("equal", clocks[0])


def reconciled(clocks: Sequence[ClockChange]) -> tuple[ClockChange, ...]:
    """The clocks of single runs, as far as they are believed.

    Where one is faster and the other slower, neither is: a change can do that, but so does a
    machine that was taken away for a part of one run.  Nor is the fit where the steady step is
    undecided and leaves room for the same change: nothing then lies in gaps or slow steps, and of
    equal steps the mean is disturbed more easily than the fast ones.
    """
    if {clock.verdict for clock in clocks} == _MOVED:
        return tuple(replace(clock, verdict="undecided") for clock in clocks)
    steady = next((clock for clock in clocks if clock.clock == "steady step"), None)
    if steady is None or steady.verdict != "undecided":
        return tuple(clocks)
    allowed = steady.speedup
    return tuple(
        replace(clock, verdict="undecided")
        if clock.verdict in _MOVED and allowed.low <= clock.speedup.value <= allowed.high
        else clock
        for clock in clocks
    )


def gate(comparison: Comparison, limit: float) -> GateVerdict:
    """Whether a change that slows training by more than *limit* is excluded, or shown.

    *Regression*: a clock is slower by its whole 95 % interval, and its estimate is beyond the
    limit; or the loss differs.  *Pass*: of no clock the interval reaches beyond the limit.
    """
    if comparison.verdict == "loss differs":
        return "regression"
    outcomes = [_gate(clock, limit) for clock in comparison.clocks]
    if "regression" in outcomes:
        return "regression"
    return "undecided" if "undecided" in outcomes or not outcomes else "pass"


def _gate(clock: ClockChange, limit: float) -> GateVerdict:
    gain = clock.speedup
    # One whose interval is not believed excludes and shows nothing.
    if clock.verdict != "undecided" and gain.high < 1 and 1 / gain.value - 1 > limit:
        return "regression"
    return "pass" if 1 / gain.low - 1 <= limit else "undecided"


def decision_of(comparison: Comparison) -> Decision:
    """What to do with the change: by its gate, or else by whether it is faster."""
    outcome = comparison.verdict if comparison.gate is None else comparison.gate.verdict
    return _DECISIONS.get(outcome, "discard")
