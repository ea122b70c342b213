"""Trials in words: the answer, the lines to write, a row per trial, and what to do."""

import math
from collections.abc import Sequence

from trainperf.core.artifacts.trials import TrialResult, Trials, TrialVerdict
from trainperf.core.choice import texts_of
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import as_fast, duration, plural, share, size, times
from trainperf.reports.charts.forest import CAPTION, RatioMark, forest
from trainperf.reports.layout.document import Heading, Part, Sentence, items
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
    return [Heading(f"trainperf try · {trials.script or 'trials'}{step}", 1), *tried(trials)]


def tried(trials: Trials, *, running: bool = False) -> list[Part]:
    """What was tried, the answer first; *running* if the training still goes on."""
    applied = [trial for trial in trials.trials if trial.verdict != "not applicable"]
    changes = [trial for trial in applied if trial.kind == "change"]
    groups = {
        "changes": [trial for trial in changes if not trial.parts],
        "together": [trial for trial in changes if trial.parts],
        CEILINGS: [trial for trial in applied if trial.kind == "ceiling"],
    }
    best = trials.best
    absent = [f"{t.title}: {t.reason}" for t in trials.trials if t.verdict == "not applicable"]
    return [
        Sentence(text=_answer(trials), kind="answer"),
        *items([] if best is None else _lines(best, trials.trials), "first", WRITE),
        *(_rows(title, shown, trials) for title, shown in groups.items() if shown),
        *([CAPTION] if applied else []),
        *items([f"not applicable: {' · '.join(absent)}"] if absent else [], "soft"),
        *items(_notes(trials, len(applied), running=running)),
        *items([_next(trials)], "first", NEXT),
    ]


def _rows(title: str, shown: Sequence[TrialResult], trials: Trials) -> Part:
    """A row per trial with its interval, and what is to be known of some of them."""
    remarks = {trial.title: "; ".join(_remarks(trial, trials)) for trial in shown}
    table = Table(
        title=title,
        head=_HEAD,
        rows=tuple(map(_row, shown)),
        end_words=1,
        notes=tuple(f"{name}: {note}" for name, note in remarks.items() if note),
    )
    return forest(table, list(map(_estimate, shown)), 3)


def _most(trial: TrialResult) -> str:
    """E.g. `at most 1.31×`: what everything of its kind brings, where that is resolved."""
    most = trial.high or 1.0
    return "nothing to gain" if most <= NOTHING_TO_GAIN else f"at most {times(most)}"


def _answer(trials: Trials) -> str:
    best = trials.best
    if best is not None:
        loss = "the loss was not compared" if best.loss_after is None else "at the same loss"
        gain = as_fast(best.speedup or 1.0, best.low or 0.0, best.high or 0.0)
        return f"Best: {best.title}: {gain}, {loss}."
    changes = [trial for trial in trials.trials if trial.kind == "change" and trial.counts]
    if not changes:
        return "Nothing was measured." if trials.trials else "Nothing was tried."
    undecided = sum(map(_may_gain, changes))
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
    bounded = trial.kind == "ceiling" or (trial.verdict == "undecided" and trial.little_to_gain)
    mark = "≤" if trial.kind == "ceiling" else _MARKS[trial.verdict]
    if not trial.resolved:
        return trial.title, "", "", f"{mark} {trial.verdict}"
    interval = f"[{trial.low:.2f}–{trial.high:.2f}]"
    verdict = _most(trial) if bounded else trial.verdict
    return trial.title, times(trial.speedup or 1.0), interval, f"{mark} {verdict}"


def _estimate(trial: TrialResult) -> RatioMark:
    kind = "most" if trial.kind == "ceiling" else _KINDS.get(trial.verdict, "even")
    value, low, high = (trial.speedup, trial.low, trial.high) if trial.resolved else (None,) * 3
    return RatioMark(value=value, low=low, high=high, kind=kind)


def _remarks(trial: TrialResult, trials: Trials) -> tuple[str, ...]:
    """What to write for a change that is faster alone, and what else there is to know."""
    alone = trial.verdict == "faster" and trial is not trials.best
    differs, unresolved = trial.verdict == "loss differs", not trial.resolved
    before, after, first_s = trial.memory_before, trial.memory_after, trial.first_step_s
    usual_s = math.inf if trials.baseline is None else trials.baseline.step_s
    return texts_of(
        *(_lines(trial, trials.trials) if alone else ()),
        trial.reason,
        differs
        and trial.loss_before
        and trial.loss_after
        and f"loss {trial.loss_before:.4g} → {trial.loss_after:.4g} on the same batches",
        unresolved
        and trial.low
        and trial.high
        and f"± {share(math.sqrt(trial.high / trial.low) - 1)} after "
        f"{plural(trial.pairs, 'pair')} of blocks",
        before
        and after
        and abs(after / before - 1) >= OTHER_MEMORY
        and f"peak memory {size(before)} → {size(after)}",
        first_s and first_s > SLOW_FIRST_STEP * usual_s and f"first step {duration(first_s)}",
    )


def _notes(trials: Trials, number: int, *, running: bool) -> tuple[str, ...]:
    undecided = [trial for trial in trials.trials if _may_gain(trial)]
    undecided.sort(key=lambda trial: (trial.kind != "change", -(trial.high or 0.0)))
    faster = [t for t in trials.trials if t.kind == "change" and t.verdict == "faster"]
    apart = len(faster) > 1 and not any(trial.parts for trial in trials.trials)
    return texts_of(
        f"{plural(number, 'trial')} in {duration(trials.took_s)}",
        undecided
        and f"{len(undecided)} undecided: more time decides them (--minutes 5 --only "
        f"{undecided[0].id}), or a quieter machine",
        apart
        and "the fastest were not tried together: no time was left, or they exclude each other",
        trials.trying
        and f"{'now trying' if running else 'ended during'} {trials.trying}: {number} of "
        f"{plural(trials.planned, 'trial')} had their turn",
    )


def _next(trials: Trials) -> str:
    """The proof; or, where a ceiling leaves more than was gained, what its time is spent on."""
    best, report = trials.best, "trainperf report shows what that time is spent on"
    ceilings = [t for t in trials.trials if t.kind == "ceiling" and t.counts and t.resolved]
    widest = max(ceilings, key=lambda trial: trial.high or 0.0, default=None)
    left = f"the largest ceiling is {widest.title} ({_most(widest)}): {report}" if widest else ""
    if best is not None:
        before = f'"{trials.script}"' if trials.script else "BEFORE"
        proof = (
            "write these lines into a copy of the script, then check both over whole trainings: "
            f"trainperf prove {before} AFTER"
        )
        beyond = widest is not None and (widest.low or 0.0) > (best.high or 0.0)
        return f"{proof}; {left}" if beyond else proof
    if widest is not None and (widest.high or 0.0) > NOTHING_TO_GAIN:
        return left
    return "trainperf report shows where the step goes"
