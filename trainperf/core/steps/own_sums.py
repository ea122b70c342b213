"""Sums of steps beside their columns: phases that a loop has named itself, and answers.

`Totals.own` holds the sums of it by name; those names are written and read here alone.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from statistics import median

import msgspec


PHASE, PROCESSOR = "phase:", "cpu:"
"""Before the name of such a phase: nanoseconds in it, and processor time of the process."""

ANSWERS = "answers"
"""The part that counts them: what is wrong with it leaves the rest alone."""


class NamedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that the loop has named itself, in a mean steady step; it is in `other` as well."""

    seconds: float
    cpus: float | None = None
    """How many CPUs the process kept busy in it; `None` where that was not counted."""


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy has generated for a mean steady step, on a mean rank; 0 where it is not known.

    An imported log has the `mean` answer in place of the median.
    """

    tokens: float = 0.0
    """Of all answers of a step."""
    number: float = 0.0
    """Answers of a rollout."""
    longest: float = 0.0
    """Tokens of the longest answer of a rollout."""
    usual: float = 0.0
    """Tokens of the median answer of a rollout, or of the mean one."""
    usual_is: str = "median"
    useless: float | None = None
    """Share of answers from which nothing is learned; `None` where nobody has judged."""


def rollout_sums(**numbers: float) -> dict[str, int]:
    """Sums of one rollout.

    Args:
        numbers: How many `answers` it has, their `tokens`, and those of the `longest` one and of
            the `median` one, or of the `mean` one.
    """
    return {"rollouts": 1} | {name: round(number) for name, number in numbers.items()}


def count_answers(
    count: Callable[[str, int], object], lengths: Sequence[int], useless: float | None = None
) -> None:
    """A policy has generated answers of these lengths in tokens.

    Args:
        count: A recorder's: adds a number to what the open step has of a name.
        lengths: Of the answers of one rollout.
        useless: Share of answers from which nothing is learned; `None`, or NaN, where nobody has
            judged.
    """
    sums: dict[str, int] = {}
    if useless is not None and isfinite(useless):
        sums |= {"judged": 1, "useless": round(1e6 * useless)}
    if lengths:
        half, total = median(lengths), sum(lengths)
        sums |= rollout_sums(answers=len(lengths), tokens=total, longest=max(lengths), median=half)
    for name, number in sums.items():
        count(name, number)


def named_phases(means: Mapping[str, float]) -> dict[str, NamedPhase]:
    """The phases that the loop has named itself, of the means over steady steps."""
    named = {name.removeprefix(PHASE): ns for name, ns in means.items() if name.startswith(PHASE)}
    return {
        name: NamedPhase(
            seconds=ns / 1e9,
            cpus=means[f"{PROCESSOR}{name}"] / ns if f"{PROCESSOR}{name}" in means else None,
        )
        for name, ns in named.items()
        if ns
    }


def answer_facts(means: Mapping[str, float]) -> AnswerFacts | None:
    """The answers, of the means over steady steps; `None` where nobody has counted any."""
    rollouts, judged = means.get("rollouts"), means.get("judged")
    usual_is = "mean" if "mean" in means else "median"
    per_rollout = {
        field: means[name] / rollouts
        for field, name in {"number": "answers", "longest": "longest", "usual": usual_is}.items()
        if rollouts
    }
    answers = AnswerFacts(
        **per_rollout,
        tokens=means.get("tokens", 0.0),
        usual_is=usual_is,
        useless=means.get("useless", 0.0) / judged / 1e6 if judged else None,
    )
    return answers if rollouts or judged else None
