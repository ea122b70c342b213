"""Rule about steps that get longer bit by bit."""

from trainperf.analysis.rules.base import Evidence, own_fit_s
from trainperf.analysis.rules.fit.long_term import (
    ALIKE,
    BIT_BY_BIT,
    MACHINE,
    OTHERWISE,
    ChangeCause,
    action_of,
    cause_of,
    in_words,
)
from trainperf.analysis.summary.schema import LineShare, SlowDrift, Summary
from trainperf.core.artifacts.memory import Holder
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import count, duration, share, words
from trainperf.core.phases import Phase


LEAST = 0.02
"""Share of the fit from which it is worth a finding."""

HELD = 0.5
"""Of the steps: a container with something of so many gathers."""

_WORK = ("forward", "backward", "optimizer")
"""Phases that do the same in every step, unless something gathers."""


def slow_drift(evidence: Evidence) -> Finding | None:
    """Steps get longer bit by bit, to the end: something gathers, or is read or written as a whole.

    The bound is what all steps take beyond the first ones.  Silent where the rise stops, or a
    machine's speed wanders.

    Wrong where: a curriculum makes batches longer all the time: what moves along says so.
    To confirm: trainperf report RUN --steps of the first and of the last tenth, phase by phase.
    """
    summary, fit_s = evidence.summary, own_fit_s(evidence.summary)
    drift = summary.long_term.drift
    if drift is None or not fit_s or drift.lost_s < LEAST * fit_s:
        return None
    cause = cause_of(drift, drift.moved, alike=drift.alike)
    line, holder = summary.owner(drift.phase), _gathers(evidence)
    per_thousand_s = (drift.ends_s - drift.begins_s) / max(1, drift.steps) * 1000
    logger = _logger(summary)
    return Finding(
        id="slow_drift",
        title=f"steps get slower all the time: {_grows(drift)} per step",
        advice=_advice(cause, drift.hook or logger, drift.phase),
        evidence=(
            (
                f"a step takes {duration(drift.begins_s)} at first and {duration(drift.ends_s)} at "
                f"last: {share(drift.ends_s / drift.begins_s - 1)} longer, "
                f"+{duration(per_thousand_s)} per 1,000 steps"
            ),
            *_hook(summary),
            *((f"Lightning calls its logger in the loop: {logger}",) if logger else ()),
            *in_words(drift.moved),
            *((f"{line.name}: {share(line.fraction)} of {words(drift.phase)}",) if line else ()),
            *((_held(holder),) if holder else ()),
        ),
        action=_action(cause, holder, drift.phase, line),
        where=(line.where if line else "") or (holder.where if holder else ""),
        confirm="trainperf report RUN --steps of the last tenth: as fast as the first",
        **costs(min(drift.lost_s / fit_s, 0.99), confidence=cause.confidence, scope="fit"),
    )


def _grows(drift: SlowDrift) -> str:
    """What grows, and from what to what."""
    if drift.alike and not drift.hook and drift.rank is None:
        return f"{ALIKE}, from {duration(drift.begins_s)} to {duration(drift.ends_s)}"
    hook = f" ({drift.hook})" if drift.hook else ""
    rank = "" if drift.rank is None else f" on rank {drift.rank}"
    ends = f"{duration(drift.phase_begins_s)} to {duration(drift.phase_ends_s)}"
    return f"{words(drift.phase)}{hook}{rank} grows from {ends}"


def _logger(summary: Summary) -> str:
    """The loggers that Lightning calls in the phase that grows; empty for another phase."""
    drift, loggers = summary.long_term.drift, summary.run.config.get("loggers")
    in_loop = drift is not None and drift.phase == Phase.LOOP.label
    return plain(loggers) if in_loop and isinstance(loggers, str) else ""


def _advice(cause: ChangeCause, what: str, phase: str) -> str:
    if what:
        return f"Keep {what} from doing more with every step"
    if cause is OTHERWISE and phase in _WORK:
        return f"Find what {phase} goes through more of with every step"
    return cause.advice


def _action(cause: ChangeCause, holder: Holder | None, phase: str, line: LineShare | None) -> str:
    if holder is not None and holder.name:
        return (
            f"clear {holder.name} after use, or keep a running sum: what goes through all of it "
            "takes longer with every step"
        )
    if phase in ("callbacks", "loop") and cause is not MACHINE:
        return (
            "append to the log file instead of writing all of it again (a CSV logger that does is "
            "fixed by a later release), and keep no list of every step's values"
        )
    if cause is OTHERWISE and phase in _WORK:
        inside = f" in {line.name}" if line else ""
        return (
            f"look{inside} for what gathers, e.g. a list of outputs or a history that is gone "
            "through as a whole; clear it after use, or keep a running sum"
        )
    return action_of(cause, BIT_BY_BIT)


def _hook(summary: Summary) -> tuple[str, ...]:
    drift = summary.long_term.drift
    if drift is None or not drift.hook:
        return ()
    return (
        (
            f"{drift.hook}: {duration(drift.hook_begins_s)} per step at first, "
            f"{duration(drift.hook_ends_s)} at last"
        ),
    )


def _gathers(evidence: Evidence) -> Holder | None:
    """A container with something of nearly every step, where the fit's end looked for one."""
    memory, steps = evidence.documents.memory, evidence.summary.run.steps
    holders = () if memory is None else memory.held
    return next((holder for holder in holders if holder.count >= HELD * steps), None)


def _held(holder: Holder) -> str:
    named = f"{holder.kind} {holder.name}" if holder.name else f"an unnamed {holder.kind}"
    return f"{named} holds {count(holder.count)} tensors or arrays"
