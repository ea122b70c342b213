"""Bisection of commits: each is trained in turns with the good one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from msgspec.structs import replace as with_fields

from trainperf.commands._commits import Checkouts, Repository
from trainperf.commands._comparison import ComparisonOptions, compared
from trainperf.commands._looks import proof_of
from trainperf.commands._paired_runs import ProofOptions, TrainingError
from trainperf.commands.cli import say
from trainperf.comparison.bisection import (
    Bisection,
    BisectionEnd,
    BisectionStep,
    Search,
    State,
    by_clock,
    half_of,
    pace_of,
    searched,
)
from trainperf.comparison.results import Clock, Comparison, Speedup
from trainperf.core.errors import ConfigError
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.stats.verdict import verdict_of
from trainperf.reports.bisection import name_of, plan_sentence, step_sentence


Decides = Callable[[Comparison], bool]
Measure = Callable[[State, State, Decides | None], Comparison]
"""Trains two commits in turns until the function says that they are compared."""


def measuring(checkouts: Checkouts, proof: ProofOptions) -> Measure:
    """Trains two commits in turns, into numbered folders."""
    number = count(1)

    def measure(first: State, second: State, decides: Decides | None) -> Comparison:
        out = proof.out / f"{next(number):02}"
        with checkouts.training(first) as before, checkouts.training(second) as after:
            say(f"{name_of(second)} against {name_of(first)}")
            options = replace(proof, out=out, decides=decides)
            pairs = proof_of((before, after), options, ComparisonOptions(form="json"))
            if pairs.interrupted:
                raise KeyboardInterrupt
            return compared(*pairs.runs, pairs.options())

    return measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """What is searched, and how."""

    repository: Repository
    ends: tuple[State, State]
    """The good commit and the bad one."""
    command: tuple[str, ...]
    """For the record."""
    slower: float | None = None
    """How much slower than the good commit counts as slow; `None`: half of what the bad one is."""
    measure: Measure

    def __call__(self) -> Bisection:
        """The first slow commit, as far as it can be told.

        Raises:
            RunError: The good or the bad commit does not train.
        """
        good, bad = self.ends
        begun_ns = monotonic_ns()
        judged = None if self.slower is None else _judged(None, self.slower)
        whole = self.measure(good, bad, judged)
        took_s = (monotonic_ns() - begun_ns) / 1e9
        blank = Bisection(end="cannot tell", good=good, bad=bad, command=self.command)
        begun = _begun(blank, whole, self.slower)
        for step in begun.steps:
            say(step_sentence(step))
        if begun.end != "found":
            return begun
        search = Search(self.repository, slow=bad, fast={good.id})
        say(plan_sentence(len(search.left()), took_s))
        steps = searched(search, lambda state: self._step(state, begun))
        return self._concluded(with_fields(begun, steps=(*begun.steps, *steps)), search)

    def _step(self, state: State, begun: Bisection) -> BisectionStep:
        """A commit against the good one; one that does not train is broken."""
        clock, limit = begun.clock, begun.limit or 0.0
        try:
            comparison = self.measure(begun.good, state, _judged(clock, limit))
            step = _step(state, comparison, clock, limit)
        except (TrainingError, ConfigError) as error:
            if isinstance(error, TrainingError) and error.side == 0:
                raise
            step = BisectionStep(state=state, pace="broken", reason=str(error))
        say(step_sentence(step))
        return step

    def _concluded(self, ended: Bisection, search: Search) -> Bisection:
        """With the first slow commit against its parent; or those that may be it."""
        first = search.slow
        if left := search.left():
            note = "those in between could not be judged"
            return with_fields(ended, end="several", candidates=(*reversed(left), first), note=note)
        before = self.repository.state(f"{first.id}^1")
        ended = with_fields(ended, first_slow=first, before=before)
        if before == ended.good:
            own = next((step.speedup for step in ended.steps if step.state == first), None)
        else:
            own = self._against(before, first, ended.clock)
        if own is None:
            return ended
        return with_fields(ended, change=own, verdict=verdict_of(own.low, own.high))

    def _against(self, before: State, first: State, clock: Clock | None) -> Speedup | None:
        """What the first slow commit costs against its parent; `None` if that cannot be told."""

        def decides(comparison: Comparison) -> bool:
            change = by_clock(comparison, clock)
            return change is None or verdict_of(change.low, change.high) != "undecided"

        try:
            return by_clock(self.measure(before, first, decides), clock)
        except (TrainingError, ConfigError):
            return None


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
