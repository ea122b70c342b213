"""The walkthrough: one advised change after the other, each on top of those kept so far."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice

import msgspec

from recipes.gpt2 import progress
from recipes.gpt2.advice import WORTH, Advice, MeasuredTrial, next_change
from recipes.gpt2.machine import Machine, this_machine, unsupported
from recipes.gpt2.micro_batch import with_swept_batch
from recipes.gpt2.noise import SHOWN, as_measured, least_gain, pair_spread, warning
from recipes.gpt2.outcomes import (
    AFTER,
    OUTCOME,
    PREDICTION,
    Prediction,
    StageOutcome,
    read,
    write_once,
)
from recipes.gpt2.outputs import save, show
from recipes.gpt2.processes import Planned, Processes, Training
from recipes.gpt2.same_work import demand_same_work
from recipes.gpt2.stages import Settings, Stage, differing
from recipes.gpt2.text import DocumentSpan, find_documents, training_order
from recipes.gpt2.time_budget import TimeBudget
from recipes.gpt2.train import Recipe, quieten
from recipes.gpt2.verdicts import baseline, with_verdict
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.machine.clocks import wall_clock_anchor
from trainperf.core.stats.sequential import ASSUMED_SPREAD, Looks
from trainperf.reports.run.headline import headline


def walkthrough(
    work: Recipe, stages: Sequence[Stage], training: Training | None = None
) -> list[StageOutcome]:
    """Try what the tool advises, on top of what was kept, until nothing is worth it.

    Args:
        work: What is trained.
        stages: The baseline, and the changes that may be tried.
        training: How runs are trained; real ones by default.
    """
    training = training or Processes()
    quieten()
    places = find_documents(work.text, work.preset)
    order = training_order(places, work.preset, work.steps, work.seed)
    demand_same_work(work)
    print(progress.introduction(work, places, order))
    budget = time_budget(work)
    walk = _Walk(work, order, training, budget, this_machine(work.accelerator))
    walk.begin(stages[0])
    while (advice := walk.next_advice(stages[1:])) is not None:
        walk.go_on(advice, stages[1:])
    walk.rest(stages[1:])
    walk.trace_last()
    show(walk.outcomes, work)
    return walk.outcomes


TIME_IS_UP = "the time is up; continue from here with --resume"
NOT_ASKED_FOR = "no finding asks for it"


class _Walk:
    """The stages so far, and what comes next."""

    def __init__(
        self,
        work: Recipe,
        order: list[DocumentSpan],
        training: Training,
        budget: TimeBudget,
        machine: Machine,
    ) -> None:
        self.outcomes: list[StageOutcome] = []
        self._work = work
        self._order = order
        self._training = training
        self._budget = budget
        self._machine = machine
        self._least = WORTH
        """Gain that must be expected of a stage."""

    @property
    def kept(self) -> StageOutcome:
        """The stage whose settings the next one changes."""
        return [each for each in self.outcomes if each.status in ("baseline", "kept")][-1]

    def begin(self, stage: Stage) -> None:
        """Run the baseline, which has nothing to be compared with."""
        outcome = self._written_before(stage)
        self._add(outcome or self._trial(1.0).baseline(stage))

    def next_advice(self, stages: Sequence[Stage]) -> Advice | None:
        """What to try next, by the run of the settings kept last, and by trials in them."""
        evidence = examine(Run.open(self._work.out / self.kept.runs[0]))
        stages, every = self._open(stages), self._work.preset.every
        advice = next_change(evidence, (), stages, every=every, least=self._least)
        if self._work.trial_minutes and (advice is None or advice.source == "silence"):
            advice = next_change(evidence, self._trials(), stages, every=every, least=self._least)
        return advice

    def _trials(self) -> list[MeasuredTrial]:
        """Changes that were tried in the settings kept last, in a run of their own."""
        folder = f"trials/{self.kept.stage}"
        run = Planned(settings=self.kept.settings, folder=folder, profiled=True, also="trials")
        path = self._work.out / directory(run)
        if not path.exists():
            self._training.alone(self._work, self._order, run)
        tried = read_document(Trials, path)
        return [
            MeasuredTrial(id=each.id, speedup=each.speedup, low=each.low, high=each.high)
            for each in (() if tried is None else tried.trials)
            if each.verdict in ("faster", "slower", "equal")
            and each.speedup is not None
            and each.low is not None
            and each.high is not None
        ]

    def go_on(self, advice: Advice, stages: Sequence[Stage]) -> None:
        """Try what was advised."""
        outcome = self._written_before(advice.stage)
        if outcome is None:
            share = time_share(
                [advice.stage, *self._expected(advice, stages)], self.kept.settings, self._machine
            )
            outcome = self._trial(share).stage(advice, self.kept, self._machine)
        self._add(outcome)
        if len(self.outcomes) == 2:
            self._judge_noise(outcome)

    def trace_last(self) -> None:
        """Run the settings kept last once more, traced, as the baseline was."""
        kept = self.kept
        run = Planned(settings=kept.settings, folder=AFTER, profiled=True, also="trace")
        if kept.status != "baseline" and not (self._work.out / AFTER).exists():
            self._training.alone(self._work, self._order, run)
        save(self.outcomes, self._work)

    def rest(self, stages: Sequence[Stage]) -> None:
        """Say of all other stages why they were not tried."""
        tried = {outcome.stage for outcome in self.outcomes}
        for stage in stages:
            if stage.name not in tried:
                settings = stage.apply(self.kept.settings)
                why = unsupported(self.kept.settings, settings, self._machine) or NOT_ASKED_FOR
                self.outcomes.append(skipped(stage, self.kept, settings, why))

    def _expected(self, advice: Advice, stages: Sequence[Stage]) -> list[Stage]:
        """Stages that probably follow: those that the report asks for too, and tempting ones."""
        findings = examine(Run.open(self._work.out / self.kept.runs[0])).summary.findings
        return [
            stage
            for stage in self._open(stages)
            if stage != advice.stage
            and (
                self._work.preset.every or stage.tempting or any(map(stage.is_asked_for, findings))
            )
        ]

    def _judge_noise(self, outcome: StageOutcome) -> None:
        """After the first stage: fewer stages and more pairs where the machine is too noisy."""
        planned = self._budget.most
        least = least_gain(outcome, planned)
        if least is None or least <= SHOWN:
            return
        self._budget.allow(2 * planned)
        self._least = least_gain(outcome, 2 * planned) or least
        print(f"\n{warning(outcome, least, planned, (2 * planned, self._least))}", flush=True)

    def _open(self, stages: Sequence[Stage]) -> list[Stage]:
        """Stages that were not tried, and that this machine can run with the settings kept last."""
        tried, kept = {outcome.stage for outcome in self.outcomes}, self.kept.settings
        return [
            stage
            for stage in stages
            if stage.name not in tried and not unsupported(kept, stage.apply(kept), self._machine)
        ]

    def _written_before(self, stage: Stage) -> StageOutcome | None:
        return read(StageOutcome, self._work.out / stage.name / OUTCOME)

    def _trial(self, share: float) -> "Trial":
        spread = pair_spread(self.outcomes, self._work.out)
        return Trial(self._work, self._order, self._training, self._budget, share, spread)

    def _add(self, outcome: StageOutcome) -> None:
        kept = self.kept if self.outcomes else None
        self.outcomes.append(outcome)
        print(progress.outcome(outcome, kept), flush=True)
        save(self.outcomes, self._work)


def skipped(stage: Stage, kept: StageOutcome, settings: Settings, why: str) -> StageOutcome:
    """The outcome of a stage that is not tried."""
    return StageOutcome(
        stage=stage.name,
        change=stage.change,
        status="skipped",
        why=why,
        settings=settings,
        changed=changes(kept.settings, settings),
        cumulative=kept.cumulative,
    )


class Trial:
    """The runs of one stage, which gets a share of the time that is left."""

    def __init__(
        self,
        work: Recipe,
        order: list[DocumentSpan],
        training: Training,
        budget: TimeBudget,
        share: float,
        spread: float = ASSUMED_SPREAD,
    ) -> None:
        self._work = work
        self._order = order
        self._training = training
        self._budget = budget
        self._share = share
        self._spread = spread
        """Of a pair of runs."""

    def baseline(self, stage: Stage) -> StageOutcome:
        """The first stage, which has nothing to be compared with."""
        settings = stage.apply(self._work.preset.start)
        run = replace(self._planned(stage.name, stage.name, settings, 1), also="trace")
        with self._budget.measured(runs=1):
            self._training.alone(self._work, self._order, run)
        return self._written(baseline(stage, settings, directory(run), self._work.out))

    def stage(self, advice: Advice, kept: StageOutcome, machine: Machine) -> StageOutcome:
        """Predict, change one thing, measure in turns with what was kept last, decide."""
        stage = advice.stage
        settings, turns = stage.apply(kept.settings), self._budget.turns(self._share)
        why = unsupported(kept.settings, settings, machine) or ("" if turns else TIME_IS_UP)
        if not why and stage.sweeps:
            settings = with_swept_batch(self._work, kept.settings, settings, self._order)
        tried = skipped(stage, kept, settings, why)
        if why:
            return tried
        tried = msgspec.structs.replace(tried, prediction=self._predicted(advice, kept, turns))
        print(progress.prediction(tried), flush=True)
        try:
            tried = self._in_turns(tried, kept, Looks(most=turns))
        except RuntimeError as error:  # out of memory, or the compiler gave up
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            failed = msgspec.structs.replace(tried, status="rejected", why=f"failed: {first_line}")
            return self._written(failed)
        if tried.verdict == "undecided" and not self._budget.suffices(len(tried.runs)):
            return skipped(stage, kept, settings, TIME_IS_UP)
        return self._written(tried)

    def _predicted(self, advice: Advice, kept: StageOutcome, turns: int) -> Prediction:
        """From the run kept last; the one that was written before, if the stage was begun once."""
        path = self._work.out / advice.stage.name / PREDICTION
        written = read(Prediction, path)
        if written is not None:
            return written
        evidence = examine(Run.open(self._work.out / kept.runs[0]))
        bound = advice.stage.bound(evidence)
        low, high = (
            None if gain is None else as_measured(gain, self._spread, Looks(most=turns))[end]
            for end, gain in enumerate((advice.low, advice.high))
        )
        prediction = Prediction(
            stage=advice.stage.name,
            change=advice.stage.change,
            written_at=wall_clock_anchor(),
            from_run=kept.runs[0],
            report=headline(evidence.summary),
            finding=advice.words,
            where=advice.where,
            expected=(advice.low, advice.high),
            spread=self._spread,
            low=low,
            high=high,
            source=advice.source,
            at_most=bound.at_most,
            why=bound.why,
        )
        write_once(prediction, path)
        return prediction

    def _in_turns(self, tried: StageOutcome, kept: StageOutcome, looks: Looks) -> StageOutcome:
        """Pairs of runs at the same time, the settings kept last and the new ones, until decided.

        The plan has so many looks, each after a pair.  A machine that slows down completes fewer:
        only the clock decides that, never the results.
        """
        stage = tried.stage
        pairs = [
            (
                self._planned(stage, kept.stage, kept.settings, number),
                self._planned(stage, stage, tried.settings, number),
            )
            for number in range(1, looks.most + 1)
        ]
        with closing(self._training.by_turns(self._work, self._order, pairs)) as training:
            for number, pair in enumerate(pairs, 1):
                # The first pair is profiled, and compiles.
                with self._budget.measured(runs=2, counts=number > 1):
                    next(training)
                before, after = map(directory, pair)
                tried = msgspec.structs.replace(
                    tried, before=(*tried.before, before), runs=(*tried.runs, after)
                )
                tried = with_verdict(tried, kept.cumulative, self._work.out, looks)
                if tried.verdict != "undecided" or self._budget.over():
                    break
        return tried

    def _planned(self, stage: str, side: str, settings: Settings, number: int) -> Planned:
        """The *number*-th new run, from 1; the first run of each side is profiled.

        Args:
            stage: The stage being tried.
            side: The stage whose settings these are: this one, or the one kept last.
            settings: What to train with.
            number: From 1.
        """
        names = (f"{stage}/{side}-{repeat}" for repeat in range(1, 10_000))
        free = (name for name in names if not (self._work.out / name).exists())
        folder = next(islice(free, number - 1, None))
        return Planned(settings=settings, folder=folder, profiled=number == 1)

    def _written(self, outcome: StageOutcome) -> StageOutcome:
        write_once(outcome, self._work.out / outcome.stage / OUTCOME)
        return outcome


def directory(run: Planned) -> str:
    """Run directory, relative to the folder of the walkthrough."""
    return f"{run.folder}/trainperf"


def time_budget(work: Recipe) -> TimeBudget:
    """The time for all runs, and how many pairs a stage may use."""
    return TimeBudget(work.minutes, work.preset.least_turns, work.preset.turns)


def time_share(stages: Sequence[Stage], settings: Settings, machine: Machine) -> float:
    """The first stage's share of the time left for all *stages*.

    A stage that compiles weighs twice as much as one that does not, and so does every stage after
    it; one that this machine cannot run weighs nothing.
    """
    weights: list[int] = []
    for stage in stages:
        tried = stage.apply(settings)
        if unsupported(settings, tried, machine):
            weights.append(0)
            continue
        if tried.compiled and not settings.compiled:
            settings = replace(settings, compiled=tried.compiled)
        weights.append(2 if tried.compiled else 1)
    return weights[0] / max(1, sum(weights))


def changes(before: Settings, after: Settings) -> tuple[str, ...]:
    """The settings that differ, e.g. `workers: 0 → 1`."""
    old, new = asdict(before), asdict(after)
    return tuple(
        f"{name}: {old[name] or 'no'} → {new[name] or 'no'}"
        if isinstance(old[name], str)
        else f"{name}: {old[name]} → {new[name]}"
        for name in differing(before, after)
    )
