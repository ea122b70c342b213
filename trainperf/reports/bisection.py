"""A bisection in words: the first slow state and what it costs, then what was measured."""

from typing import Literal, Protocol

from trainperf.comparison.bisection import Bisection, BisectionStep, PackageDifference, State
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import duration, plural, share
from trainperf.reports.comparison import speed
from trainperf.reports.layout.document import Part, Sentence, items
from trainperf.reports.layout.finding_view import NEXT


_HASH = 10
"""Letters of a commit's hash."""

_HEAD = ("", "", "against good", "pairs")


def answer(bisection: Bisection) -> str:
    """What came of it, in a sentence."""
    good, bad = (name_of(bisection, state) for state in (bisection.good, bisection.bad))
    if bisection.end == "not slower":
        return f"{bad} is not slower than {good}: {_measured(bisection.steps[0])}."
    if bisection.end == "several":
        names = ", ".join(name_of(bisection, state) for state in bisection.candidates)
        number = len(bisection.candidates)
        return f"The first slow {_noun(bisection)} is one of {number}: {names}."
    first = bisection.first_slow
    if first is None:
        why = _why(bisection)
        return f"Cannot tell which {_noun(bisection)} made {bad} slower than {good}: {why}."
    cost = ""
    if bisection.change is not None and bisection.verdict is not None:
        cost = f": {bisection.verdict}, {speed(bisection.change)} as the one before it"
    return f"{name_of(bisection, first)} is the first slow {_noun(bisection)}{cost}."


def _why(bisection: Bisection) -> str:
    if bisection.note:
        return bisection.note
    return _measured(bisection.steps[0]) if bisection.steps else "nothing was measured"


def _noun(bisection: Bisection) -> str:
    return "commit" if bisection.kind == "commits" else "package"


class Ends(Protocol):
    """What is searched, from a good state to a bad one."""

    @property
    def kind(self) -> Literal["commits", "packages"]:
        """What the states are."""
        ...

    @property
    def good(self) -> State:
        """The fast end."""
        ...

    @property
    def bad(self) -> State:
        """The slow end."""
        ...


def name_of(bisection: Ends, state: State) -> str:
    """E.g. `1f0c2d3e4a “Sort the batches”`, `torch 2.5.1 → 2.6.0`, `/envs/new/bin/python`."""
    if bisection.kind == "commits":
        return f"{state.id[:_HASH]} “{state.title}”"
    return state.id if state in (bisection.good, bisection.bad) else state.title


def step_sentence(bisection: Bisection, step: BisectionStep) -> str:
    """E.g. `1f0c2d3e4a “Sort the batches”: slow, 0.668× as fast (95 % CI 0.65–0.69), 2 pairs`."""
    pairs = f", {plural(step.pairs, 'pair')}" if step.pairs else ""
    return f"{measured_name(bisection, step.state)}: {step.pace}, {_measured(step)}{pairs}"


def measured_name(bisection: Ends, state: State) -> str:
    """Of a mixture, that it has more than the package by which it is named."""
    name = name_of(bisection, state)
    if bisection.kind == "commits" or state in (bisection.good, bisection.bad):
        return name
    return f"with all up to {name}"


def plan_sentence(states: int, took_s: float) -> str:
    """How long it may take, where that many states are left and the first comparison took so long.

    Example: 7 states take 3 comparisons, halving them, and one of the first slow state with the one
    before it.
    """
    comparisons = states.bit_length() + (states > 0)
    if not comparisons:
        return "nothing lies between the two"
    return (
        f"{states} between the two: about {plural(comparisons, 'more comparison')}, "
        f"{duration(comparisons * took_s)} if each takes as long as this one"
    )


def _measured(step: BisectionStep) -> str:
    if step.speedup is None:
        return step.reason or "not measured"
    return speed(step.speedup) + (f"; {step.reason}" if step.reason else "")


def notes(bisection: Bisection) -> list[str]:
    """How it was judged, what else differs, and what to do now."""
    sentences = []
    if bisection.clock is not None and bisection.end != "not slower":
        sentences.append(
            f"judged by the {bisection.clock}, against {name_of(bisection, bisection.good)}: more "
            f"than {share(bisection.limit or 0.0)} slower is slow"
        )
    if bisection.note and bisection.end == "several":
        sentences.append(bisection.note)
    if bisection.differences:
        listed = ", ".join(map(_difference, bisection.differences))
        sentences.append(f"{plural(len(bisection.differences), 'package')} differ: {listed}")
    sentences += [
        f"skipped: {measured_name(bisection, step.state)}: {step.reason}"
        for step in bisection.steps
        if step.pace in ("broken", "cannot tell") and step.reason
    ]
    sentences += bisection.warnings
    step = _next(bisection)
    return [*sentences, *([f"{NEXT}: {step}"] if step else [])]


def _difference(difference: PackageDifference) -> str:
    absent = "not installed"
    return f"{difference.name} {difference.good or absent} → {difference.bad or absent}"


def _next(bisection: Bisection) -> str:
    if bisection.kind == "commits" and bisection.first_slow is not None:
        return f"git show {bisection.first_slow.id[:_HASH]}"
    broken = {step.state.id for step in bisection.steps if step.pace == "broken"}
    unclear = bisection.candidates[:-1]  # the last is known to be slow
    if bisection.kind == "commits" and unclear and all(each.id in broken for each in unclear):
        names = " ".join(each.id[:_HASH] for each in bisection.candidates)
        return f"git show {names}; more pairs tell nothing of what does not train"
    if bisection.end == "several" or (bisection.end == "cannot tell" and bisection.steps):
        return "more pairs (--pairs), longer trainings (--to-the-end), or a quieter machine"
    return ""


def bisection_document(bisection: Bisection) -> list[Part]:
    """The answer, what it stands on, and all that was measured."""
    rows = tuple(
        (
            measured_name(bisection, step.state),
            step.pace,
            speed(step.speedup) if step.speedup is not None else "",
            str(step.pairs or ""),
        )
        for step in bisection.steps
    )
    table = [Table(head=_HEAD, rows=rows, words=2)] if rows else []
    return [Sentence(text=answer(bisection), kind="answer"), *items(notes(bisection)), *table]
