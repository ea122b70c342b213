"""The walkthrough: one stage after the other, each on top of the changes kept so far."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice

import msgspec

from recipes.gpt2 import progress
from recipes.gpt2.machine import Machine, this_machine, unsupported
from recipes.gpt2.micro_batch import with_swept_batch
from recipes.gpt2.outcomes import (
    OUTCOME,
    PREDICTION,
    WORK,
    Prediction,
    StageOutcome,
    read,
    write_once,
)
from recipes.gpt2.outputs import save, show
from recipes.gpt2.processes import Planned, Processes, Training
from recipes.gpt2.stages import Settings, Stage, differing
from recipes.gpt2.text import DocumentSpan, find_documents, training_order
from recipes.gpt2.time_budget import TimeBudget
from recipes.gpt2.train import Recipe, quieten
from recipes.gpt2.verdicts import baseline, with_verdict
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.machine.clocks import wall_clock_anchor
from trainperf.reports.run.run_view import headline


def walkthrough(
    work: Recipe, stages: Sequence[Stage], training: Training | None = None
) -> list[StageOutcome]:
    """Try each stage on top of the last one that was kept, and print its prediction and verdict."""
    training = training or Processes()
    quieten()
    places = find_documents(work.text, work.preset)
    order = training_order(places, work.preset, work.steps, work.seed)
    same_work(work)
    print(progress.introduction(work, places, order))
    machine, budget = this_machine(work.accelerator), time_budget(work)
    outcomes: list[StageOutcome] = []
    for place, stage in enumerate(stages):
        kept = last_kept(outcomes)
        share = time_share(stages[place:], kept.settings, machine) if kept else 1.0
        outcome = read(StageOutcome, work.out / stage.name / OUTCOME)
        if outcome is None:
            trial = Trial(work, order, training, budget, share)
            outcome = trial.stage(stage, kept, machine) if kept else trial.baseline(stage)
        outcomes.append(outcome)
        print(progress.outcome(outcome, kept), flush=True)
        save(outcomes, work)
    show(outcomes, work)
    return outcomes


TIME_IS_UP = "the time is up; continue from here with --resume"


class Trial:
    """The runs of one stage, which gets a share of the time that is left."""

    def __init__(
        self,
        work: Recipe,
        order: list[DocumentSpan],
        training: Training,
        budget: TimeBudget,
        share: float,
    ) -> None:
        self._work = work
        self._order = order
        self._training = training
        self._budget = budget
        self._share = share

    def baseline(self, stage: Stage) -> StageOutcome:
        """The first stage, which has nothing to be compared with."""
        settings = stage.apply(Settings(accumulation=self._work.preset.accumulation))
        run = self._planned(stage.name, stage.name, settings, 1)
        with self._budget.measured(runs=1):
            self._training.alone(self._work, self._order, run)
        return self._written(baseline(stage, settings, directory(run), self._work.out))

    def stage(self, stage: Stage, kept: StageOutcome, machine: Machine) -> StageOutcome:
        """Predict, change one thing, measure in turns with what was kept last, decide."""
        settings = stage.apply(kept.settings)
        why, turns = unsupported(kept.settings, settings, machine), self._budget.turns(self._share)
        if not why and not turns:
            why = TIME_IS_UP
        if not why and stage.sweeps:
            settings = with_swept_batch(self._work, kept.settings, settings, self._order)
        tried = StageOutcome(
            stage=stage.name,
            change=stage.change,
            status="skipped",
            why=why,
            settings=settings,
            changed=changes(kept.settings, settings),
            prediction=None if why else self._predicted(stage, kept),
            cumulative=kept.cumulative,
        )
        if why:
            return tried
        print(progress.prediction(tried), flush=True)
        try:
            before, runs = self._in_turns(stage, kept, settings, turns)
        except RuntimeError as error:  # out of memory, or the compiler gave up
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            failed = msgspec.structs.replace(tried, status="rejected", why=f"failed: {first_line}")
            return self._written(failed)
        if not self._budget.suffices(len(runs)):
            return msgspec.structs.replace(tried, why=TIME_IS_UP)
        tried = msgspec.structs.replace(tried, before=tuple(before), runs=tuple(runs))
        return self._written(with_verdict(tried, self._work.out))

    def _predicted(self, stage: Stage, kept: StageOutcome) -> Prediction:
        """From the run kept last; the one that was written before, if the stage was begun once."""
        path = self._work.out / stage.name / PREDICTION
        written = read(Prediction, path)
        if written is not None:
            return written
        evidence = examine(Run.open(self._work.out / kept.runs[0]))
        bound = stage.bound(evidence)
        titles = (each.title for each in evidence.summary.findings if each.id == stage.finding)
        prediction = Prediction(
            stage=stage.name,
            change=stage.change,
            written_at=wall_clock_anchor(),
            from_run=kept.runs[0],
            report=headline(evidence.summary),
            finding=next(titles, None),
            at_most=bound.at_most,
            why=bound.why,
        )
        write_once(prediction, path)
        return prediction

    def _in_turns(
        self, stage: Stage, kept: StageOutcome, settings: Settings, turns: int
    ) -> tuple[list[str], list[str]]:
        """Pairs of runs at the same time: the settings kept last, and the new ones.

        A machine that slows down completes fewer pairs than planned.  Only the clock decides that,
        never the results.
        """
        pairs = [
            (
                self._planned(stage.name, kept.stage, kept.settings, number),
                self._planned(stage.name, stage.name, settings, number),
            )
            for number in range(1, turns + 1)
        ]
        done = 0
        with closing(self._training.by_turns(self._work, self._order, pairs)) as training:
            while done < turns and not (done and self._budget.over()):
                # The first pair is profiled, and compiles.
                with self._budget.measured(runs=2, counts=done > 0):
                    next(training)
                done += 1
            if done == turns:
                next(training, None)  # their processes end by themselves
        sides = zip(*pairs[:done], strict=True)
        before, after = ([directory(run) for run in side] for side in sides)
        return before, after

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


def last_kept(outcomes: Sequence[StageOutcome]) -> StageOutcome | None:
    """The stage whose settings the next one changes."""
    kept = [outcome for outcome in outcomes if outcome.status in ("baseline", "kept")]
    return kept[-1] if kept else None


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


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What all stages of one walkthrough have in common."""

    preset: str
    steps: int
    seed: int
    text: str
    accelerator: str


def same_work(work: Recipe) -> None:
    """Write down what is trained, or check it against what was written.

    Raises:
        ValueError: The folder holds a walkthrough of other work.
    """
    mine = Identity(
        preset=work.preset.name,
        steps=work.steps,
        seed=work.seed,
        text=str(work.text or ""),
        accelerator=work.accelerator,
    )
    path = work.out / WORK
    theirs = read(Identity, path)
    if theirs is None:
        write_once(mine, path)
    elif theirs != mine:
        raise ValueError(
            f"out={work.out}: holds a walkthrough with other options; resume it with those, "
            "or name another folder with --out"
        )
