"""Pairs of trainings until they decide: run a pair, look, say what it shows, and stop or go on."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainperf.analysis.run.directory import Run
from trainperf.commands._comparison import ComparisonOptions, compare_sides, compared
from trainperf.commands._paired_runs import PairOfRuns, ProofOptions, Trainings, run_pairs
from trainperf.commands._trainings import parsed
from trainperf.commands.cli import CommandResult, say
from trainperf.comparison.clocks import gate
from trainperf.comparison.compare import TOO_FEW
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison, FirstSteps, ProofEnd, ProofFacts
from trainperf.core.choice import first_that_holds
from trainperf.core.formatting.units import duration, plural
from trainperf.core.interleaving import TurnsSoFar
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.stats.bootstrap import LEAST_STEPS
from trainperf.core.stats.sequential import (
    Looks,
    PairState,
    TurnTimes,
    pair_state,
)
from trainperf.meters.fold import NO_STEADY_STATE
from trainperf.reports.comparison import answer


PERIODS = 2
"""Whole periods that a pair has of what comes back, e.g. validations, before it is ended early."""

_PERIODS_S = 120.0
"""Periods that take longer are not waited for: the answer is over the first steps then.  Nor are
those that would more than double a first pair with a clear change, unless a gate has to hold."""


def prove(
    trainings: tuple[str, str], options: ProofOptions, shown: ComparisonOptions
) -> CommandResult:
    """Run pairs until the verdict stands, the pairs are used up, or the user interrupts.

    Raises:
        ConfigError: A command line cannot be run.
        KeyboardInterrupt: Before the first pair showed anything.
        RunError: A training failed, was not measured, or did not take turns.
    """
    before, after = map(parsed, trainings)
    # A program reads a line; a list of one comparison, as `compare` prints it.
    form = "line" if shown.form == "json" else shown.form
    decides = partial(is_decided, limit=shown.most_slower)
    proof = proof_of((before, after), options, replace(shown, form=form), decides)
    paths = [[Path(run.summary.run.path) for run in side] for side in proof.runs]
    return compare_sides(paths, proof.options())


def proof_of(
    trainings: Trainings,
    options: ProofOptions,
    shown: ComparisonOptions,
    decides: Callable[[Comparison], bool],
) -> "Proof":
    """The pairs, and what they show.

    Args:
        trainings: Before, and after.
        options: How often at most, and how.
        shown: How they are compared.
        decides: Whether no more pairs are needed than those that were compared.

    Raises:
        KeyboardInterrupt: Before the first pair showed anything.
        RunError: A training failed, was not measured, or did not take turns.
    """
    method = replace(shown.method, looks=Looks(most=options.pairs))
    proof = Proof(wanted=options, shown=replace(shown, method=method), decides=decides)
    with closing(run_pairs(trainings, options, proof.enough)) as pairs:
        try:
            for pair in pairs:
                if proof.add(pair):
                    break
        except KeyboardInterrupt:
            if not proof.pairs:
                raise
            proof.ended_by = "interrupted"
    return proof


@dataclass(slots=True, kw_only=True)
class Proof:
    """The pairs so far, and what they show."""

    wanted: ProofOptions
    shown: ComparisonOptions
    decides: Callable[[Comparison], bool]
    comparison: Comparison | None = None
    """Of the pairs so far."""
    runs: tuple[list[ComparedRun], list[ComparedRun]] = field(default_factory=lambda: ([], []))
    begun_ns: int = field(default_factory=monotonic_ns)
    pair_begun_ns: int = field(default_factory=monotonic_ns)
    """When the pair under way was launched."""
    ended_by: ProofEnd = "pairs used up"
    ended: bool = False
    """Whether a pair was ended before its trainings were through."""
    settled_pair: int = 0
    """The latest pair that shows a clear change, or can show no more."""
    patience_s: float = _PERIODS_S
    """How long the steps of `PERIODS` may take to be waited for, in that pair."""
    periods: "Periods | None" = None
    """What came back in the pair that was looked at last."""

    @property
    def pairs(self) -> int:
        """Pairs so far."""
        return len(self.runs[0])

    @property
    def looks(self) -> Looks:
        """The plan."""
        return self.shown.method.looks or Looks(most=1)

    def enough(self, number: int, turns: TurnsSoFar) -> bool:
        """Whether a pair can be ended: it is settled, and has whole periods if they are awaited."""
        if self.wanted.to_the_end:
            return False
        self.periods = periods = Periods.of(turns)
        since_s = (monotonic_ns() - self.pair_begun_ns) / 1e9
        costs_s = (max(0.0, since_s - periods.turns_s), periods.turns_s)
        state = self._state(number, turns, costs_s)
        if self.settled_pair < number and state != "unsettled":
            self.settled_pair, self.patience_s = number, _PERIODS_S
        # A gate passes the fit too, which an epoch start may slow.
        if state == "clear" and self.shown.most_slower is None:
            self.patience_s = min(self.patience_s, sum(costs_s) + periods.turns_s)
        return self.settled_pair == number and periods.may_end(self.patience_s)

    def _state(self, number: int, turns: TurnsSoFar, costs_s: tuple[float, float]) -> PairState:
        """By its turns so far, the first quarter being warm-up."""
        before, after = settled = [side[max(1, len(side) // 4) :] for side in turns]
        if any(sum(turn.steady for turn in side) < 2 * LEAST_STEPS for side in settled):
            return "unsettled"
        clocks = [
            TurnTimes(
                before=[turn.steady_ns for turn in before],
                after=[turn.steady_ns for turn in after],
            ),
            TurnTimes(
                before=[turn.whole_ns for turn in before],
                after=[turn.whole_ns for turn in after],
            ),
        ]
        return pair_state(clocks, self.looks, first=number == 1, costs_s=costs_s)

    def add(self, pair: PairOfRuns) -> bool:
        """Look at one pair more; whether it is the last."""
        for side, path in enumerate(pair.runs):
            self.runs[side].append(read_run(Run.open(path)))
        self.ended |= pair.ended
        if pair.ended and self.periods is not None and not self.periods.contained:
            method = self.shown.method
            first = FirstSteps(steps=self._shortest(), period=self.periods.period)
            method = replace(method, first_steps=first.least(method.first_steps))
            self.shown = replace(self.shown, method=method)
        self.comparison = comparison = compared(*self.runs, self.shown)
        self.ended_by = first_that_holds(
            ("interrupted", pair.interrupted),
            ("not comparable", comparison.headline is None),
            ("decided", self.decides(comparison)),
            ("pairs used up", True),
        )
        left = self.looks.most - self.pairs
        if left and self.ended_by == "pairs used up":
            most = duration(left * self._spent_s() / self.pairs)
            say(f"{answer(comparison)} At most {plural(left, 'more pair')}, {most}.")
        self.pair_begun_ns = monotonic_ns()
        return self.ended_by != "pairs used up"

    def _shortest(self) -> int:
        """Steps of the shorter training of the last pair."""
        return min(side[-1].summary.run.steps for side in self.runs)

    def _spent_s(self) -> float:
        return (monotonic_ns() - self.begun_ns) / 1e9

    def options(self) -> ComparisonOptions:
        """How the pairs are to be shown: as asked for, with what they took."""
        facts = ProofFacts(
            pairs=self.pairs,
            most_pairs=self.looks.most,
            ended_by=self.ended_by,
            ended_early=self.ended,
            took_s=self._spent_s(),
        )
        return replace(self.shown, ending=self.ending(), proof=facts)

    def ending(self) -> str:
        """How many pairs it took, why it ended, and what the verdict stands on."""
        taken = plural(self.pairs, "pair")
        why = {
            "not comparable": f"{taken}; more would not make these runs comparable{self._longer()}",
            "decided": f"{taken} of at most {self.looks.most} decided it",
            "interrupted": f"interrupted after {taken}",
            "pairs used up": f"{taken} did not decide it (--pairs)",
        }
        sentence = f"{why[self.ended_by]}, in {duration(self._spent_s())}"
        if self.ended:
            sentence += (
                "; trainings were ended when the change was clear or more steps would have shown "
                "nothing new, so what happens less often is not included (--to-the-end)"
            )
        return f"{sentence}."

    def _longer(self) -> str:
        """What would, where the trainings were too short."""
        comparison = self.comparison
        if comparison is None or not comparison.reason.startswith((NO_STEADY_STATE, TOO_FEW)):
            return ""
        return f", trainings of more than {plural(self._shortest(), 'step')} may"


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How often what comes back, e.g. validation, came back in the turns of a pair so far."""

    steps: int
    """Of each training."""
    turns_s: float
    """Time of all of them, of both sides together."""
    period: int
    """Steps after which it comes back; 0 if nothing is known to."""
    turn: int
    """Steps of the longest turn."""

    @classmethod
    def of(cls, turns: TurnsSoFar) -> "Periods":
        """In these turns."""
        all_turns = [turn for side in turns for turn in side]
        return cls(
            steps=min(sum(turn.steps for turn in side) for side in turns),
            turns_s=sum(turn.steps * turn.whole_ns for turn in all_turns) / 1e9,
            period=max((turn.period for turn in all_turns), default=0),
            turn=max((turn.steps for turn in all_turns), default=0),
        )

    @property
    def contained(self) -> bool:
        """Whether there were at least `PERIODS`; what ends one comes in the turn after it."""
        return 0 < PERIODS * self.period < self.steps

    def may_end(self, patience_s: float) -> bool:
        """Whether one has just ended, or all their steps would take longer than that."""
        if self.contained:
            return (self.steps % self.period or self.period) <= self.turn
        step_s = self.turns_s / max(1, self.steps)
        return not self.period or PERIODS * self.period * step_s > patience_s


def is_decided(comparison: Comparison, limit: float | None = None) -> bool:
    """Whether further pairs are not needed, or would not help.

    Args:
        comparison: Of the pairs so far.
        limit: Of the gate, which is to be decided too; `None` without one.
    """
    clock = comparison.headline
    if clock is None:
        return True
    judged = limit is None or gate(comparison, limit) != "undecided"
    # A loss that differs says nothing of the clocks, and is no reason to stop looking at them.
    verdict = clock.verdict if comparison.verdict == "loss differs" else comparison.verdict
    return judged and verdict != "undecided"
