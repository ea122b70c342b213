"""Bisection of commits or of environments: each state is trained in turns with the good one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec.structs import replace as with_fields

from trainperf.commands._commits import Checkouts, short
from trainperf.commands._comparison import ComparisonOptions, compared
from trainperf.commands._environments import (
    Environment,
    differences,
    grouped,
    overlay,
    state_of,
)
from trainperf.commands._looks import proof_of
from trainperf.commands._paired_runs import ProofOptions, TrainingError
from trainperf.commands._trainings import TrainingCommand
from trainperf.commands.cli import say
from trainperf.comparison.bisection import (
    Bisection,
    BisectionEnd,
    BisectionStep,
    LinearHistory,
    PackageDifference,
    Search,
    State,
    by_clock,
    half_of,
    pace_of,
    searched,
)
from trainperf.comparison.results import Clock, Comparison, Speedup
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import plural
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.stats.verdict import verdict_of
from trainperf.reports.bisection import measured_name, plan_sentence, step_sentence


Words = tuple[str, ...]
Decides = Callable[[Comparison], bool]
Measure = Callable[[State, State, Decides | None], Comparison]
"""Trains two states in turns until the function says that they are compared."""


_NOT_PACKAGES = (
    "the good environment is not slow with the bad one's packages in front: the cause is none of "
    "their files"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is searched: states, their order, and how each is trained."""

    kind: Literal["commits", "packages"]
    good: State
    bad: State
    search: Search | str
    """Where to begin once the bad state is shown to be slow; or why it cannot be searched."""
    before: Callable[[State], State]
    """The state before one."""
    training: Callable[[State], AbstractContextManager[TrainingCommand]]
    """The user's command in a state."""
    differences: tuple[PackageDifference, ...] = ()
    """Of two environments."""
    warnings: list[str] = field(default_factory=list)
    """What to know about the measurements so far."""


def commit_subject(revisions: tuple[str, str], words: Words, checkouts: Checkouts) -> Subject:
    """Two commits of a repository, and those between them.

    Raises:
        ConfigError: There is no such commit, or one is no ancestor of the other.
    """
    repository, warnings = checkouts.repository, list[str]()
    good, bad = map(repository.state, revisions)
    repository.check_order(good, bad)
    if changed := repository.uncommitted():
        more = f" and {plural(len(changed) - 1, 'other file')}" if changed[1:] else ""
        warnings = [f"changes of {changed[0]}{more} are in no commit, so they were not measured"]

    @contextmanager
    def training(state: State) -> Iterator[TrainingCommand]:
        with checkouts.of(state.id) as checkout:
            yield checkout.training(words)
            for path in checkout.changed():
                warning = (
                    f"{path} has changed while {short(state.id)} trained; if the training wrote "
                    "it through its link, name what trainings read with --link"
                )
                if warning not in warnings:
                    warnings.append(warning)

    return Subject(
        kind="commits",
        good=good,
        bad=bad,
        search=Search(repository, slow=bad, fast={good.id}),
        before=lambda state: repository.state(f"{state.id}^1"),
        training=training,
        warnings=warnings,
    )


def package_subject(pythons: Sequence[str], words: Words, folder: Path) -> Subject:
    """Two environments, by their Pythons, and mixtures of them: each has a change more.

    Raises:
        ConfigError: One of them does not run.
    """
    environments = good, bad = [Environment.of(python) for python in pythons]
    ends = [State(id=each.python, title=each.kind) for each in environments]
    apart = differences(good, bad)
    groups = grouped(apart, bad)
    states = [state_of(group) for group in groups]
    search: Search | str = Search(LinearHistory((*states, ends[1])), slow=ends[1], fast=set())
    if good.kind != bad.kind:
        search = (
            f"the two are {good.kind} and {bad.kind}: packages of one do not run "
            "in the other, so they were not narrowed down"
        )
    elif not states:
        search = "no package differs: the cause is outside of them"

    @contextmanager
    def training(state: State) -> Iterator[TrainingCommand]:
        if state in ends:
            yield environments[ends.index(state)].training(words)
            return
        taken = states.index(state) + 1
        variables = overlay(groups[:taken], bad, folder / f"with-{taken}")
        yield replace(good.training(words), environment=variables)

    return Subject(
        kind="packages",
        good=ends[0],
        bad=ends[1],
        search=search,
        before=lambda state: [ends[0], *states][states.index(state)],
        training=training,
        differences=apart,
    )


def measuring(subject: Subject, proof: ProofOptions) -> Measure:
    """Trains two states of it in turns, into numbered folders."""
    number = count(1)

    def measure(first: State, second: State, decides: Decides | None) -> Comparison:
        out = proof.out / f"{next(number):02}"
        with subject.training(first) as before, subject.training(second) as after:
            say(f"{measured_name(subject, second)} against {measured_name(subject, first)}")
            options = replace(proof, out=out, decides=decides)
            pairs = proof_of((before, after), options, ComparisonOptions(form="json"))
            if pairs.interrupted:
                raise KeyboardInterrupt
            return compared(*pairs.runs, pairs.options())

    return measure


def bisected(subject: Subject, words: Words, slower: float | None, measure: Measure) -> Bisection:
    """The first slow state, as far as it can be told.

    Args:
        subject: What is searched.
        words: The command, for the record.
        slower: How much slower than the good state counts as slow; `None`: half of what the bad
            state is.
        measure: As `measuring` makes it.

    Raises:
        RunError: The good or the bad state does not train.
    """
    blank = Bisection(
        kind=subject.kind,
        end="cannot tell",
        good=subject.good,
        bad=subject.bad,
        command=words,
        differences=subject.differences,
    )
    begun_ns = monotonic_ns()
    whole = measure(subject.good, subject.bad, None if slower is None else _judged(None, slower))
    took_s = (monotonic_ns() - begun_ns) / 1e9
    ended = _begun(blank, whole, slower)
    for step in ended.steps:
        say(step_sentence(ended, step))
    search = subject.search
    if ended.end == "found" and isinstance(search, str):
        ended = with_fields(ended, end="cannot tell", note=search)
    elif ended.end == "found" and isinstance(search, Search):
        say(plan_sentence(len(search.left()), took_s))
        steps = searched(search, lambda state: _measured(ended, state, measure))
        ended = _concluded(
            with_fields(ended, steps=(*ended.steps, *steps)), subject, search, measure
        )
    return with_fields(ended, warnings=tuple(subject.warnings))


def _judged(clock: Clock | None, limit: float) -> Decides:
    """Whether a comparison tells on which side of the limit a state is."""
    return lambda comparison: pace_of(comparison, clock, limit) != "cannot tell"


def _begun(blank: Bisection, whole: Comparison, slower: float | None) -> Bisection:
    """After the bad state was measured; its `end` is *found* where it is slow."""
    clock = whole.headline
    if clock is None:
        return with_fields(blank, note=f"the two ends are not comparable: {whole.reason}")
    limit, end = slower, _ENDS.get(clock.verdict, "not slower")
    if limit is None:
        limit = half_of(clock.speedup) if end == "found" else 0.0
    step = _step(blank.bad, whole, clock.clock, limit)
    if slower is not None:
        end = _ENDS.get(step.pace, "cannot tell")
    elif end == "found":  # its interval may well reach across half of what it is
        step = with_fields(step, pace="slow", reason="")
    elif end == "not slower":
        step = with_fields(step, pace="fast", reason="")
    return with_fields(blank, end=end, clock=clock.clock, limit=limit, steps=(step,))


_ENDS: dict[str, BisectionEnd] = {
    "slower": "found",
    "undecided": "cannot tell",
    "slow": "found",
    "fast": "not slower",
}
"""What the bad state's verdict, or its pace, means for the search; *found* is to go on."""


def _step(state: State, comparison: Comparison, clock: Clock | None, limit: float) -> BisectionStep:
    pace = pace_of(comparison, clock, limit)
    change = by_clock(comparison, clock)
    reasons = {"cannot tell": "undecided at the limit", "broken": comparison.reason}
    return BisectionStep(
        state=state,
        pace=pace,
        speedup=change,
        pairs=comparison.proof.pairs if comparison.proof else 0,
        reason=reasons.get(pace, ""),
    )


def _measured(begun: Bisection, state: State, measure: Measure) -> BisectionStep:
    """A state against the good one; one that does not train is broken."""
    clock, limit = begun.clock, begun.limit or 0.0
    try:
        step = _step(state, measure(begun.good, state, _judged(clock, limit)), clock, limit)
    except (TrainingError, ConfigError) as error:
        if isinstance(error, TrainingError) and error.side == 0:
            raise
        step = BisectionStep(state=state, pace="broken", reason=str(error))
    say(step_sentence(begun, step))
    return step


def _concluded(ended: Bisection, subject: Subject, search: Search, measure: Measure) -> Bisection:
    """With the first slow state, measured against the one before it; or those that may be it."""
    first = search.slow
    if left := search.left():
        note = "those in between could not be judged"
        return with_fields(ended, end="several", candidates=(*reversed(left), first), note=note)
    if first == subject.bad and subject.kind == "packages":
        return with_fields(ended, end="cannot tell", note=_NOT_PACKAGES)
    before = subject.before(first)
    ended = with_fields(ended, first_slow=first, before=before)
    if before == subject.good:
        own = next((step.speedup for step in ended.steps if step.state == first), None)
    else:
        own = _against(before, first, ended, measure)
    if own is None:
        return ended
    return with_fields(ended, change=own, verdict=verdict_of(own.low, own.high))


def _against(before: State, first: State, ended: Bisection, measure: Measure) -> Speedup | None:
    """What the first slow state costs against the one before it; `None` if that cannot be told."""

    def decides(comparison: Comparison) -> bool:
        change = by_clock(comparison, ended.clock)
        return change is None or verdict_of(change.low, change.high) != "undecided"

    try:
        return by_clock(measure(before, first, decides), ended.clock)
    except (TrainingError, ConfigError):
        return None
