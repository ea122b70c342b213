"""Which changes are proved?  One stage after the other, each on top of those that were kept."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice

import msgspec

from recipes.gpt2 import told
from recipes.gpt2.judged import baseline, judged
from recipes.gpt2.larger import with_swept_batch
from recipes.gpt2.machine import Machine, lacking, this_machine
from recipes.gpt2.outcomes import (
    OUTCOME,
    PREDICTION,
    WORK,
    Prediction,
    StageOutcome,
    read,
    write_once,
)
from recipes.gpt2.pace import Pace
from recipes.gpt2.shown import save, show
from recipes.gpt2.sides import Planned, Processes, Training
from recipes.gpt2.stages import Settings, Stage, differing
from recipes.gpt2.text import DocumentSpan, find_documents, training_order
from recipes.gpt2.train import Recipe, quieten
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.machine.clocks.host import wall_clock_anchor
from trainperf.reports.run.headline import headline


def walkthrough(
    work: Recipe, stages: Sequence[Stage], training: Training | None = None
) -> list[StageOutcome]:
    """Try each stage on top of the last one that was kept, and say what became of it."""
    training = training or Processes()
    quieten()
    places = find_documents(work.text, work.preset)
    order = training_order(places, work.preset, work.steps, work.seed)
    same_work(work)
    print(told.work(work, places, order))
    machine, pace = this_machine(work.accelerator), pace_of(work)
    outcomes: list[StageOutcome] = []
    for place, stage in enumerate(stages):
        kept = last_kept(outcomes)
        share = time_share(stages[place:], kept.settings, machine) if kept else 1.0
        outcome = read(StageOutcome, work.out / stage.name / OUTCOME)
        if outcome is None:
            trial = Trial(work, order, training, pace, share)
            outcome = trial.stage(stage, kept, machine) if kept else trial.baseline(stage)
        outcomes.append(outcome)
        print(told.outcome(outcome, kept), flush=True)
        save(outcomes, work)
    show(outcomes, work)
    return outcomes


TIME_IS_UP = "the time is up: --resume goes on from here"


class Trial:
    """The runs of one stage, which gets a share of the time that is left."""

    def __init__(
        self, work: Recipe, order: list[DocumentSpan], training: Training, pace: Pace, share: float
    ) -> None:
        self._work = work
        self._order = order
        self._training = training
        self._pace = pace
        self._share = share

    def baseline(self, stage: Stage) -> StageOutcome:
        """There is nothing to compare it with yet."""
        settings = stage.apply(Settings(accumulation=self._work.preset.accumulation))
        run = self._planned(stage.name, stage.name, settings, 1)
        with self._pace.measured(runs=1):
            self._training.alone(self._work, self._order, run)
        return self._written(baseline(stage, settings, directory(run), self._work.out))

    def stage(self, stage: Stage, kept: StageOutcome, machine: Machine) -> StageOutcome:
        """Predict, change one thing, measure in turns with what was kept last, decide."""
        settings = stage.apply(kept.settings)
        why, turns = lacking(kept.settings, settings, machine), self._pace.turns(self._share)
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
        print(told.before(tried), flush=True)
        try:
            before, runs = self._in_turns(stage, kept, settings, turns)
        except RuntimeError as error:  # out of memory, or the compiler gave up
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            failed = msgspec.structs.replace(tried, status="rejected", why=f"failed: {first_line}")
            return self._written(failed)
        if not self._pace.suffices(len(runs)):
            return msgspec.structs.replace(tried, why=TIME_IS_UP)
        tried = msgspec.structs.replace(tried, before=tuple(before), runs=tuple(runs))
        return self._written(judged(tried, self._work.out))

    def _predicted(self, stage: Stage, kept: StageOutcome) -> Prediction:
        """From the run kept last; the one that was written before, if the stage was begun once."""
        path = self._work.out / stage.name / PREDICTION
        written = read(Prediction, path)
        if written is not None:
            return written
        evidence = examine(Run.open(self._work.out / kept.runs[0]))
        bound = stage.bound(evidence)
        found = (one.title for one in evidence.summary.findings if one.id == stage.finding)
        prediction = Prediction(
            stage=stage.name,
            change=stage.change,
            written_at=wall_clock_anchor(),
            from_run=kept.runs[0],
            report=headline(evidence.summary),
            finding=next(found, None),
            at_most=bound.at_most,
            why=bound.why,
        )
        write_once(prediction, path)
        return prediction

    def _in_turns(
        self, stage: Stage, kept: StageOutcome, settings: Settings, turns: int
    ) -> tuple[list[str], list[str]]:
        """Pairs of runs at once, of the settings kept last and of the new ones.

        A machine that gets slow meanwhile leaves fewer than were planned: the clock decides that,
        and not what the runs have said.
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
            while done < turns and not (done and self._pace.over()):
                # The first pair is looked at, and compiles.
                with self._pace.measured(runs=2, counts=done > 0):
                    next(training)
                done += 1
            if done == turns:
                next(training, None)  # their processes end by themselves
        sides = zip(*pairs[:done], strict=True)
        before, after = ([directory(run) for run in side] for side in sides)
        return before, after

    def _planned(self, stage: str, side: str, settings: Settings, number: int) -> Planned:
        """The *number*-th new run; both sides are looked at in their first.

        Args:
            stage: Which is tried.
            side: Whose settings these are: its own, or those of the stage kept last.
            settings: What is trained with.
            number: From 1.
        """
        names = (f"{stage}/{side}-{one}" for one in range(1, 10_000))
        free = (name for name in names if not (self._work.out / name).exists())
        folder = next(islice(free, number - 1, None))
        return Planned(settings=settings, folder=folder, looked_at=number == 1)

    def _written(self, outcome: StageOutcome) -> StageOutcome:
        write_once(outcome, self._work.out / outcome.stage / OUTCOME)
        return outcome


def directory(run: Planned) -> str:
    """That of the run, below the folder of the walkthrough."""
    return f"{run.folder}/trainperf"


def pace_of(work: Recipe) -> Pace:
    """The time that there is, and what it is to be spent on."""
    return Pace(work.minutes, work.preset.least_turns, work.preset.turns)


def last_kept(outcomes: Sequence[StageOutcome]) -> StageOutcome | None:
    """The stage whose settings the next one changes."""
    kept = [one for one in outcomes if one.status in ("baseline", "kept")]
    return kept[-1] if kept else None


def time_share(stages: Sequence[Stage], settings: Settings, machine: Machine) -> float:
    """What the first of the stages gets of the time for all that will be measured.

    As far as that is known before: a stage that compiles gets twice as much as one that does not,
    and once one has compiled those after it do.
    """
    weights: list[int] = []
    for stage in stages:
        tried = stage.apply(settings)
        if lacking(settings, tried, machine):
            weights.append(0)
            continue
        if tried.compiled and not settings.compiled:
            settings = replace(settings, compiled=tried.compiled)
        weights.append(2 if tried.compiled else 1)
    return weights[0] / max(1, sum(weights))


def changes(before: Settings, after: Settings) -> tuple[str, ...]:
    """What is other, e.g. `workers: 0 → 1`."""
    old, new = asdict(before), asdict(after)
    return tuple(
        f"{name}: {old[name] or 'no'} → {new[name] or 'no'}"
        if isinstance(old[name], str)
        else f"{name}: {old[name]} → {new[name]}"
        for name in differing(before, after)
    )


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be the same for stages to be in one walkthrough."""

    preset: str
    steps: int
    seed: int
    text: str
    accelerator: str


def same_work(work: Recipe) -> None:
    """Note what is trained, or find it noted.

    Raises:
        ValueError: The folder holds a walkthrough of something else.
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
            f"out={work.out}: holds a walkthrough of other work; resume that one with its own "
            "options, or name another folder with --out"
        )
