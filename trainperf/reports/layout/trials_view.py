"""Trials in words: the same answer, rows and sentences for every renderer.

Every text in it is on one line, without control characters; escaping for markdown and HTML is left
to the renderer.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec

from trainperf.core.artifacts.trials import TrialResult, Trials, TrialVerdict
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import as_fast, duration, plural, share, size, times


_MARKS: dict[TrialVerdict, str] = {
    "faster": "▲",
    "slower": "▼",
    "equal": "=",
    "undecided": "?",
    "loss differs": "≠",
    "failed": "✕",
    "not applicable": "–",
}
_CEILING = "≤"

NOTHING_TO_GAIN = 1.02
"""A ceiling at or below it is not worth a change."""

OTHER_MEMORY = 0.05
"""A share of the peak by which it must change to be mentioned."""

SLOW_FIRST_STEP = 10.0
"""A first step is mentioned from so many usual steps on."""


class AppliedLine(msgspec.Struct, frozen=True, array_like=True):
    """A line to write, and where it belongs if it does not say it."""

    line: str
    where: str


class TrialRow(msgspec.Struct, frozen=True, kw_only=True):
    """One trial as a row, and as a mark on a scale of speed-ups."""

    id: str
    title: str
    speedup: str
    """E.g. `1.38×`; empty where nothing is resolved."""
    interval: str
    """E.g. `[1.33–1.43]`."""
    verdict: str
    """In words; what it brings at most, where that is all that is known or to be said."""
    loss: str
    """E.g. `2.31 → 2.52`; empty where it was not compared."""
    lines: tuple[AppliedLine, ...]
    """What to write for it."""
    note: str
    """What to know about it, e.g. `loss 2.31 → 2.52 on the same batches`; mostly empty."""
    mark: str
    """The verdict as a sign, for those who do not tell colours apart."""
    kind: TrialVerdict
    value: float | None
    """The numbers behind it, for a picture; `None` as in `speedup`."""
    low: float | None
    high: float | None


class TrialsView(msgspec.Struct, frozen=True, kw_only=True):
    """What every renderer shows of trials, in this order."""

    title: str
    answer: str
    lines: tuple[AppliedLine, ...]
    """Lines to write for the best."""
    changes: tuple[TrialRow, ...]
    """One by one."""
    sets: tuple[TrialRow, ...]
    """Several changes together."""
    ceilings: tuple[TrialRow, ...]
    """What families of changes bring at most; the verdict says it."""
    unavailable: tuple[str, ...]
    """What does not apply, each with the reason."""
    notes: tuple[str, ...]
    """What was put back, how long it took, what was not decided."""
    next: str
    """What to do."""


def trials_view(trials: Trials, *, running: bool = False) -> TrialsView:
    """Put what was tried into words; *running* if the training still goes on."""
    applied = [trial for trial in trials.trials if trial.verdict != "not applicable"]
    changes = [trial for trial in applied if trial.kind == "change"]
    best = trials.best
    step = "" if trials.baseline is None else f" · step {duration(trials.baseline.step_s)} as it is"
    return TrialsView(
        title=f"trainperf try · {plain(trials.script) or 'trials'}{step}",
        answer=plain(_answer(trials)),
        lines=() if best is None else tuple(_lines(best, trials.trials)),
        changes=tuple(_row(trial, trials) for trial in changes if not trial.parts),
        sets=tuple(_row(trial, trials) for trial in changes if trial.parts),
        ceilings=tuple(_row(trial, trials) for trial in applied if trial.kind == "ceiling"),
        unavailable=tuple(
            plain(f"{trial.title}: {trial.reason}")
            for trial in trials.trials
            if trial.verdict == "not applicable"
        ),
        notes=tuple(map(plain, _notes(trials, running=running))),
        next=plain(_next(trials)),
    )


def speed(trial: TrialResult) -> str:
    """E.g. `1.38× as fast (95 % CI 1.33–1.43)`; empty where nothing is resolved."""
    if not trial.resolved:
        return ""
    return as_fast(trial.speedup or 1.0, trial.low or 0.0, trial.high or 0.0)


def loss_change(trial: TrialResult) -> str:
    """E.g. `2.31 → 2.52 on the same batches`; empty where it was not compared."""
    return f"{_losses(trial)} on the same batches" if _losses(trial) else ""


def _losses(trial: TrialResult) -> str:
    if trial.loss_before is None or trial.loss_after is None:
        return ""
    return f"{trial.loss_before:.4g} → {trial.loss_after:.4g}"


def ceiling_sentence(trial: TrialResult) -> str:
    """E.g. `at most 1.31×`: what everything of its kind brings, where that is resolved."""
    most = trial.high or 1.0
    return "nothing to gain" if most <= NOTHING_TO_GAIN else f"at most {times(most)}"


def _answer(trials: Trials) -> str:
    best = trials.best
    if best is not None:
        loss = "the loss was not compared" if not loss_change(best) else "at the same loss"
        return f"Best: {best.title}: {speed(best)}, {loss}."
    changes = [trial for trial in trials.trials if trial.kind == "change" and trial.counts]
    if not changes:
        return "Nothing was measured." if trials.trials else "Nothing was tried."
    undecided = sum(_may_gain(trial) for trial in changes)
    if undecided == len(changes):
        return f"Nothing was decided: {plural(undecided, 'change')} may be faster or slower."
    doubt = f"; {plural(undecided, 'change')} undecided" if undecided else ""
    return f"Nothing that was tried is faster here{doubt}."


def _may_gain(trial: TrialResult) -> bool:
    """Whether more time may show that it is faster."""
    return trial.verdict == "undecided" and not trial.little_to_gain


def _lines(best: TrialResult, trials: Sequence[TrialResult]) -> Iterator[AppliedLine]:
    parts = [trial for trial in trials if trial.id in best.parts] or [best]
    for trial in parts:
        if trial.apply:
            yield AppliedLine(plain(trial.apply), plain(trial.where))


def _row(trial: TrialResult, trials: Trials) -> TrialRow:
    usual_s = None if trials.baseline is None else trials.baseline.step_s
    shown = trial.resolved
    bounded = trial.kind == "ceiling" or (trial.verdict == "undecided" and trial.little_to_gain)
    return TrialRow(
        id=trial.id,
        title=plain(trial.title),
        speedup=times(trial.speedup or 1.0) if shown else "",
        interval=f"[{_ends(trial)}]" if shown else "",
        verdict=ceiling_sentence(trial) if bounded and shown else trial.verdict,
        loss=_losses(trial),
        lines=tuple(_lines(trial, trials.trials)),
        note=plain("; ".join(_row_notes(trial, usual_s))),
        mark=_CEILING if trial.kind == "ceiling" else _MARKS[trial.verdict],
        kind=trial.verdict,
        value=trial.speedup if shown else None,
        low=trial.low if shown else None,
        high=trial.high if shown else None,
    )


def _ends(trial: TrialResult) -> str:
    return f"{trial.low:.2f}–{trial.high:.2f}"


def _row_notes(trial: TrialResult, usual_s: float | None) -> Iterator[str]:
    if trial.reason:
        yield trial.reason
    if trial.verdict == "loss differs" and loss_change(trial):
        yield loss_change(trial)
    if trial.low and trial.high and not trial.resolved:
        spread = math.sqrt(trial.high / trial.low) - 1
        yield f"± {share(spread)} after {plural(trial.pairs, 'pair')} of blocks"
    before, after = trial.memory_before, trial.memory_after
    if before and after and abs(after / before - 1) >= OTHER_MEMORY:
        yield f"peak memory {size(before)} → {size(after)}"
    if usual_s and (trial.first_step_s or 0.0) > SLOW_FIRST_STEP * usual_s:
        yield f"first step {duration(trial.first_step_s or 0.0)}"


def _notes(trials: Trials, *, running: bool) -> Iterator[str]:
    blocks = ""
    if trials.baseline is not None:
        blocks = f", with {plural(trials.baseline.blocks, 'block')} of steps without a change"
    tried = sum(trial.verdict != "not applicable" for trial in trials.trials)
    yield f"{plural(tried, 'trial')} in {duration(trials.took_s)}{blocks}"
    if trials.restored:
        yield f"put back after each: {trials.restored}"
    undecided = [trial for trial in trials.trials if _may_gain(trial)]
    if undecided:
        first = max(undecided, key=lambda trial: (trial.kind == "change", trial.high or 0.0))
        more = f"--minutes 5 --only {first.id}"
        yield f"{len(undecided)} undecided: more time decides them ({more}), or a quieter machine"
    best, widest = trials.best, _widest(trials)
    if best is not None and widest is not None and (widest.low or 0.0) > (best.high or 0.0):
        yield (
            f"more is left than that: {widest.title}, {ceiling_sentence(widest)}; trainperf report "
            "shows what that time is spent on"
        )
    faster = [t for t in trials.trials if t.kind == "change" and t.verdict == "faster"]
    if len(faster) > 1 and not any(trial.parts for trial in trials.trials):
        yield "the fastest were not tried together: no time was left, or they exclude each other"
    if trials.trying:
        now = "now trying" if running else "ended during"
        yield (
            f"{now} {trials.trying}: {tried} of {plural(trials.planned, 'trial')} had their turn"
        )


def _widest(trials: Trials) -> TrialResult | None:
    """The ceiling that leaves most; `None` without any."""
    ceilings = [t for t in trials.trials if t.kind == "ceiling" and t.counts and t.resolved]
    return max(ceilings, key=lambda trial: trial.high or 0.0, default=None)


def _next(trials: Trials) -> str:
    if trials.best is not None:
        before = f'"{trials.script}"' if trials.script else "BEFORE"
        return (
            "write these lines into a copy of the script, then check both over whole trainings: "
            f"trainperf prove {before} AFTER"
        )
    widest = _widest(trials)
    if widest is not None and (widest.high or 0.0) > NOTHING_TO_GAIN:
        return (
            f"the largest ceiling is {widest.title} ({ceiling_sentence(widest)}): "
            "trainperf report shows what that time is spent on"
        )
    return "trainperf report shows where the step goes"
