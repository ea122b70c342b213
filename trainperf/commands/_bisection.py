"""Bisection of commits or of environments: each state is trained in turns with the good one."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from msgspec.structs import replace as with_fields

from trainperf.commands._commits import Checkouts, Outside, Repository, short
from trainperf.commands._comparison import ComparisonOptions, compared
from trainperf.commands._environments import Environment, Mixtures, differences
from trainperf.commands._looks import ProofOptions, proof_of
from trainperf.commands._paired_runs import TrainingCommand, TrainingError
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
from trainperf.core.formatting.escape import encodable, plain
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


class Subject(Protocol):
    """What is searched: states, their order, and how each is trained."""

    @property
    def kind(self) -> Literal["commits", "packages"]:
        """What the states are."""
        ...

    @property
    def warnings(self) -> list[str]:
        """What to know about the measurements so far."""
        ...

    @property
    def good(self) -> State:
        """The fast end."""
        ...

    @property
    def bad(self) -> State:
        """The slow end."""
        ...

    def search(self) -> Search | str:
        """Where to begin once the bad state is shown to be slow; or why it cannot be searched."""
        ...

    def differences(self) -> tuple[PackageDifference, ...]:
        """Of two environments."""
        ...

    def before(self, state: State) -> State:
        """The state before it."""
        ...

    def training(self, state: State) -> AbstractContextManager[TrainingCommand]:
        """The user's command in that state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSubject:
    """Commits from a good one to a bad one."""

    repository: Repository
    checkouts: Checkouts
    good: State
    bad: State
    words: Words
    kind: Literal["commits"] = "commits"
    warnings: list[str] = field(default_factory=list)

    def search(self) -> Search | str:
        """Between the two."""
        return Search(self.repository, slow=self.bad, fast={self.good.id})

    def differences(self) -> tuple[PackageDifference, ...]:
        """None: it is one environment."""
        return ()

    def before(self, state: State) -> State:
        """Its first parent."""
        return self.repository.parent(state.id)

    @contextmanager
    def training(self, state: State) -> Iterator[TrainingCommand]:
        """In a checkout of its own."""
        with self.checkouts.of(state.id) as checkout:
            yield checkout.training(self.words)
            for path in checkout.data.changed():
                warning = (
                    f"{path} has changed while {short(state.id)} trained; if the training wrote "
                    "it through its link, name what trainings read with --link"
                )
                if warning not in self.warnings:
                    self.warnings.append(warning)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSubject:
    """Packages that differ between two environments."""

    good_python: Environment
    bad_python: Environment
    mixtures: Mixtures
    words: Words
    kind: Literal["packages"] = "packages"
    warnings: list[str] = field(default_factory=list)

    @property
    def good(self) -> State:
        """The first environment."""
        return self.good_python.state

    @property
    def bad(self) -> State:
        """The second."""
        return self.bad_python.state

    def search(self) -> Search | str:
        """Through mixtures of the two, if they can be mixed."""
        if self.good.title != self.bad.title:
            return (
                f"the two are {self.good.title} and {self.bad.title}: packages of one do not run "
                "in the other, so they were not narrowed down"
            )
        states = self.mixtures.states()
        if not states:
            return "no package differs: the cause is outside of them"
        return Search(LinearHistory((*states, self.bad)), slow=self.bad, fast=set())

    def differences(self) -> tuple[PackageDifference, ...]:
        """By name."""
        return differences(self.good_python, self.bad_python)

    def before(self, state: State) -> State:
        """With one change less."""
        states = self.mixtures.states()
        place = states.index(state)
        return states[place - 1] if place else self.good

    @contextmanager
    def training(self, state: State) -> Iterator[TrainingCommand]:
        """By the good Python, with the packages of the mixture in front."""
        if state == self.bad:
            yield self.bad_python.training(self.words)
        elif state == self.good:
            yield self.good_python.training(self.words)
        else:
            yield self.good_python.training(self.words, self.mixtures.overlay(state))


def commit_subject(
    revisions: tuple[str, str], words: Words, folder: Path, outside: Outside
) -> CommitSubject:
    """Two commits of the repository of the working directory.

    Raises:
        ConfigError: There is no repository, no such commit, or one is no ancestor of the other.
    """
    repository = Repository.here()
    good, bad = map(repository.state, revisions)
    repository.check_order(good, bad)
    checkouts = Checkouts(repository=repository, folder=folder, outside=outside)
    changed = repository.uncommitted()
    warnings = []
    if changed:
        more = f" and {plural(len(changed) - 1, 'other file')}" if changed[1:] else ""
        warnings = [f"changes of {changed[0]}{more} are in no commit, so they were not measured"]
    return CommitSubject(
        repository=repository,
        checkouts=checkouts,
        good=good,
        bad=bad,
        words=words,
        warnings=warnings,
    )


def package_subject(pythons: Sequence[str], words: Words, folder: Path) -> PackageSubject:
    """Two environments, by their Pythons.

    Raises:
        ConfigError: One of them does not run.
    """
    good, bad = map(Environment.of, pythons)
    mixtures = Mixtures.between(good, bad, folder)
    return PackageSubject(good_python=good, bad_python=bad, mixtures=mixtures, words=words)


def measuring(subject: Subject, proof: ProofOptions) -> Measure:
    """Trains two states of it in turns, into numbered folders."""
    number = count(1)

    def measure(first: State, second: State, decides: Decides | None) -> Comparison:
        out = proof.out / f"{next(number):02}"
        with subject.training(first) as before, subject.training(second) as after:
            _tell(f"{measured_name(subject, second)} against {measured_name(subject, first)}")
            pairs = proof_of(
                (before, after),
                replace(proof, out=out, decides=decides),
                ComparisonOptions(form="json"),
            )
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
        differences=subject.differences(),
    )
    begun_ns = monotonic_ns()
    whole = measure(subject.good, subject.bad, None if slower is None else _beyond(slower))
    took_s = (monotonic_ns() - begun_ns) / 1e9
    begun = _begun(blank, whole, slower)
    for step in begun.steps:
        _say(begun, step)
    if begun.end != "found":
        return with_fields(begun, warnings=tuple(subject.warnings))
    search = subject.search()
    if isinstance(search, str):
        return with_fields(begun, end="cannot tell", note=search)
    _tell(plan_sentence(len(search.left()), took_s))
    judge = _Judge(begun, measure)
    ended = with_fields(begun, steps=(*begun.steps, *searched(search, judge)))
    ended = _ended(ended, subject, search, measure)
    return with_fields(ended, warnings=tuple(subject.warnings))


def _beyond(limit: float) -> Decides:
    return lambda comparison: pace_of(comparison, None, limit) != "cannot tell"


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


@dataclass(frozen=True, slots=True)
class _Judge:
    """Measures a state against the good one."""

    begun: Bisection
    measure: Measure

    def __call__(self, state: State) -> BisectionStep:
        """One that does not train is broken."""
        clock, limit = self.begun.clock, self.begun.limit or 0.0

        def decides(comparison: Comparison) -> bool:
            return pace_of(comparison, clock, limit) != "cannot tell"

        try:
            comparison = self.measure(self.begun.good, state, decides)
        except TrainingError as error:
            if error.side == 0:
                raise
            step = BisectionStep(state=state, pace="broken", reason=str(error))
        except ConfigError as error:
            step = BisectionStep(state=state, pace="broken", reason=str(error))
        else:
            step = _step(state, comparison, clock, limit)
        _say(self.begun, step)
        return step


def _ended(ended: Bisection, subject: Subject, search: Search, measure: Measure) -> Bisection:
    """With the first slow state, measured against the one before it; or those that may be it."""
    left = search.left()
    if left:
        candidates = (*reversed(left), search.slow)
        return with_fields(
            ended,
            end="several",
            candidates=candidates,
            note="those in between could not be judged",
        )
    first = search.slow
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


def _say(bisection: Bisection, step: BisectionStep) -> None:
    _tell(step_sentence(bisection, step))


def _tell(sentence: str) -> None:
    sys.stderr.write(encodable(f"trainperf: {plain(sentence)}\n", sys.stderr))
    sys.stderr.flush()
