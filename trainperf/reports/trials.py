"""Trials in words: the answer, the lines to write, a row per trial, and what to do."""

import math
from collections.abc import Iterator, Sequence

from trainperf.core.artifacts.trials import TrialResult, Trials, TrialVerdict
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import as_fast, duration, plural, share, size, times
from trainperf.reports.charts.forest import CAPTION, RatioMark, forest
from trainperf.reports.layout.document import Heading, Part, Sentence, items, labelled
from trainperf.reports.layout.finding_view import NEXT, WRITE


_MARKS: dict[TrialVerdict, str] = {
    "faster": "▲",
    "slower": "▼",
    "equal": "=",
    "undecided": "?",
    "loss differs": "≠",
    "failed": "✕",
    "not applicable": "–",
}
"""The verdict as a sign, for those who do not tell colours apart."""

_KINDS: dict[TrialVerdict, str] = {"faster": "good", "slower": "bad", "loss differs": "doubt"}
"""Classes of the style by verdict; the others are even."""

_HEAD = ("", "speed-up", "95 % CI", "")
CEILINGS = "ceilings: what leaving out the work itself would bring"

NOTHING_TO_GAIN = 1.02
"""A ceiling at or below it is not worth a change."""

OTHER_MEMORY = 0.05
"""A share of the peak by which it must change to be mentioned."""

SLOW_FIRST_STEP = 10.0
"""A first step is mentioned from so many usual steps on."""


def trials_document(trials: Trials) -> list[Part]:
    """A report of its own."""
    step = "" if trials.baseline is None else f" · step {duration(trials.baseline.step_s)} as it is"
    title = Heading(f"trainperf try · {trials.script or 'trials'}{step}", 1)
    answer, *others = tried(trials)
    return [title, answer, *others]


def tried(trials: Trials, *, running: bool = False) -> list[Part]:
    """What was tried, the answer first; *running* if the training still goes on."""
    applied = [trial for trial in trials.trials if trial.verdict != "not applicable"]
    changes = [trial for trial in applied if trial.kind == "change"]
    best = trials.best
    return [
        Sentence(text=_answer(trials), kind="answer"),
        *labelled(WRITE, [] if best is None else _lines(best, trials.trials), "first"),
        *_rows("changes", [trial for trial in changes if not trial.parts], trials),
        *_rows("together", [trial for trial in changes if trial.parts], trials),
        *_rows(CEILINGS, [trial for trial in applied if trial.kind == "ceiling"], trials),
        *([CAPTION] if applied else []),
        *items(_unavailable(trials), "soft"),
        *items(_notes(trials, running=running)),
        *labelled(NEXT, [_next(trials)], "first"),
    ]


def _rows(title: str, shown: Sequence[TrialResult], trials: Trials) -> list[Part]:
    """A row per trial with its interval, and what is to be known of some of them."""
    if not shown:
        return []
    rows = tuple(map(_row, shown))
    notes = [
        f"{trial.title}: {note}" for trial in shown if (note := "; ".join(_remarks(trial, trials)))
    ]
    table = Table(title=title, head=_HEAD, rows=rows, end_words=1, notes=(*notes,))
    return [forest(table, list(map(_estimate, shown)), 3)]


def _unavailable(trials: Trials) -> list[str]:
    whys = [
        f"{trial.title}: {trial.reason}"
        for trial in trials.trials
        if trial.verdict == "not applicable"
    ]
    return [f"not applicable: {' · '.join(whys)}"] if whys else []


def speed(trial: TrialResult) -> str:
    """E.g. `1.38× as fast (95 % CI 1.33–1.43)`; empty where nothing is resolved."""
    if not trial.resolved:
        return ""
    return as_fast(trial.speedup or 1.0, trial.low or 0.0, trial.high or 0.0)


def loss_change(trial: TrialResult) -> str:
    """E.g. `2.31 → 2.52 on the same batches`; empty where it was not compared."""
    if trial.loss_before is None or trial.loss_after is None:
        return ""
    return f"{trial.loss_before:.4g} → {trial.loss_after:.4g} on the same batches"


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


def _lines(trial: TrialResult, trials: Sequence[TrialResult]) -> list[str]:
    """What to write for it, and where that belongs if it does not say it."""
    parts = [each for each in trials if each.id in trial.parts] or [trial]
    return [
        f"{part.apply}  ({part.where})" if part.where else part.apply
        for part in parts
        if part.apply
    ]


def _row(trial: TrialResult) -> tuple[str, ...]:
    shown = trial.resolved
    bounded = trial.kind == "ceiling" or (trial.verdict == "undecided" and trial.little_to_gain)
    verdict = ceiling_sentence(trial) if bounded and shown else trial.verdict
    mark = "≤" if trial.kind == "ceiling" else _MARKS[trial.verdict]
    return (
        trial.title,
        times(trial.speedup or 1.0) if shown else "",
        f"[{trial.low:.2f}–{trial.high:.2f}]" if shown else "",
        f"{mark} {verdict}",
    )


def _estimate(trial: TrialResult) -> RatioMark:
    kind = "most" if trial.kind == "ceiling" else _KINDS.get(trial.verdict, "even")
    if not trial.resolved:
        return RatioMark(value=None, low=None, high=None, kind=kind)
    return RatioMark(value=trial.speedup, low=trial.low, high=trial.high, kind=kind)


def _remarks(trial: TrialResult, trials: Trials) -> Iterator[str]:
    """What to write for a change that is faster alone, and what else there is to know."""
    usual_s = None if trials.baseline is None else trials.baseline.step_s
    if trial.verdict == "faster" and trial is not trials.best:
        yield from _lines(trial, trials.trials)
    if trial.reason:
        yield trial.reason
    if trial.verdict == "loss differs" and loss_change(trial):
        yield f"loss {loss_change(trial)}"
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
    number = sum(trial.verdict != "not applicable" for trial in trials.trials)
    yield f"{plural(number, 'trial')} in {duration(trials.took_s)}{blocks}"
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
            f"{now} {trials.trying}: {number} of {plural(trials.planned, 'trial')} had their turn"
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
