"""Logs of real fits, replayed on a clock that moves only where the test says.

The order of events is Lightning's own, as it was recorded (`record_logs.py`); time passes inside or
after chosen actions only, so that every share is known to the nanosecond.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.live import micro_batch_done

from trainperf.core.phases import PHASES, Phase, Tag
from trainperf.core.steps.records import GapRecord
from trainperf.lightning.boundaries import Boundaries
from trainperf.loop import FitOptions
from trainperf.loop.fit import Fit
from trainperf.recording.recorder import Draft
from trainperf.testing import FakeClock


LOGS = Path(__file__).parent / "logs"

FETCH = "[_TrainingEpochLoop].train_dataloader_next"
TRANSFER = "[Strategy]SingleDeviceStrategy.batch_to_device"
FORWARD = "[Strategy]SingleDeviceStrategy.training_step"
SLOW_HOOK = "[Callback]At.on_train_batch_end"

Passing = Callable[[str, str], int]
"""From `start` or `stop` and a name to the nanoseconds that pass just after it."""


class Replayed:
    """A log run through `Boundaries`: the steps and gaps it makes."""

    def __init__(self, log: str, passing: Passing, **settings: bool) -> None:
        self.clock = FakeClock()
        fit = Fit(FitOptions(), self.clock)
        self.recorder, self.guard = fit.recorder, fit.guard
        self.boundaries = Boundaries(fit)
        for name, value in settings.items():
            setattr(self.boundaries, name, value)
        self._brackets: dict[str, Any] = {}
        recorded = json.loads((LOGS / f"{log}.json").read_text())
        for _, kind, value in recorded["rows"]:
            if kind == "done":
                micro_batch_done(self.recorder, complete=value)
            else:
                self._event(kind, **recorded["names"][value])
                self.clock.advance(ns=passing(kind, recorded["names"][value]["name"]))
        self.fit_ns = self.recorder.end()
        drafts, gaps = self.recorder.take()
        self.steps: Sequence[Draft] = drafts
        self.gaps: Sequence[GapRecord] = gaps
        assert self.guard.faults == {}
        filled = sum(sum(step.host_ns) for step in drafts) + sum(gap.duration_ns for gap in gaps)
        assert filled == self.fit_ns

    def _event(self, kind: str, *, name: str, own: bool) -> None:
        if name not in self._brackets:
            self._brackets[name] = self.boundaries.bracket(name, overridden=own)
        bracket = self._brackets[name]
        if bracket is None:
            return
        if kind == "start":
            bracket.__enter__()
        else:
            bracket.__exit__(None, None, None)

    def phases_ns(self) -> list[dict[str, int]]:
        """Of every step, what is not zero."""
        return [
            {phase.label: step.host_ns[phase] for phase in PHASES if step.host_ns[phase]}
            for step in self.steps
        ]

    def gaps_ns(self) -> list[tuple[str, int]]:
        """Kind and length of every gap that is not empty, in order."""
        return [(gap.gap, gap.duration_ns) for gap in self.gaps if gap.duration_ns]

    def tagged(self, tag: Tag) -> list[int]:
        """Numbers of the steps with a tag."""
        return [step.index for step in self.steps if step.tags & tag]

    def micro_batches(self) -> list[int]:
        """Of every step."""
        return [step.micro_batches for step in self.steps]


def inside(amounts: dict[str, int]) -> Passing:
    """Time passes just after these actions start."""
    return lambda kind, name: amounts.get(name, 0) if kind == "start" else 0


def after(amounts: dict[str, int]) -> Passing:
    """Time passes just after these actions stop."""
    return lambda kind, name: amounts.get(name, 0) if kind == "stop" else 0


def module(model: str, hook: str) -> str:
    """The action of a module's hook."""
    return f"[LightningModule]{model}.{hook}"


# The automatic log: two epochs of five batches in pairs, validation after the third batch with a
# checkpoint inside, a sanity check, and one slow callback at each of two hooks.
AUTOMATIC = "SelfValidated"


def test_the_steps_of_automatic_optimization_are_those_of_the_fit() -> None:
    """Groups of two, a short last one, validation inside the second group of each epoch."""
    ran = Replayed("automatic", inside({}))
    assert ran.micro_batches() == [2, 2, 1, 2, 2, 1]
    assert ran.tagged(Tag.FIRST_IN_EPOCH) == [0, 3]
    assert ran.tagged(Tag.AFTER_VALIDATION) == [1, 4]
    assert ran.tagged(Tag.AFTER_CHECKPOINT) == [1, 4]


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        (FETCH, Phase.DATA_WAIT),
        (TRANSFER, Phase.H2D),
        (module(AUTOMATIC, "on_after_batch_transfer"), Phase.H2D),
        (FORWARD, Phase.FORWARD),
        ("[Callback]AtBackward.on_after_backward", Phase.CALLBACKS),
        (SLOW_HOOK, Phase.CALLBACKS),
        (module(AUTOMATIC, "on_train_batch_start"), Phase.OTHER),
        ("run_training_batch", Phase.OTHER),
    ],
)
def test_time_inside_an_action_is_its_phases(action: str, phase: Phase) -> None:
    """Seven nanoseconds each time, two micro-batches a step, and nothing anywhere else."""
    ran = Replayed("automatic", inside({action: 7}))
    once = {phase.label: 7}
    twice = {phase.label: 14}
    transfers = action in (TRANSFER, module(AUTOMATIC, "on_after_batch_transfer"))
    validations = [("sanity_check", 7), ("validation", 7), ("validation", 7)] if transfers else []
    assert ran.phases_ns() == [twice, twice, once, twice, twice, once]
    assert ran.gaps_ns() == validations


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        (FETCH, Phase.OTHER),
        (TRANSFER, Phase.OTHER),
        (module(AUTOMATIC, "on_before_backward"), Phase.BACKWARD),
        (module(AUTOMATIC, "on_train_batch_end"), Phase.LOOP),
    ],
)
def test_time_after_an_action_is_what_follows_it(action: str, phase: Phase) -> None:
    """Backward begins where the last hook before it ends; so does the loop's own time."""
    ran = Replayed("automatic", after({action: 7}))
    spent = [step.host_ns[phase] for step in ran.steps]
    whole = [14, 14, 7, 14, 14, 7]
    if phase is Phase.LOOP:  # before the validation between two micro-batches it is that gap's
        assert spent == [14, 7, 7, 14, 7, 7]
        assert ran.gaps_ns() == [("validation", 7), ("validation", 7)]
    else:
        assert spent == whole
    assert all(set(phases) == {phase.label} for phases in ran.phases_ns())


def test_only_a_micro_batch_that_steps_runs_inside_the_optimizer() -> None:
    """Accumulation needs no optimizer around its forward and backward, and shows none."""
    ran = Replayed("automatic", inside({module(AUTOMATIC, "optimizer_step"): 7}))
    assert ran.phases_ns() == [{"optimizer": 7}] * 6
    ran = Replayed("automatic", inside({module(AUTOMATIC, "on_before_backward"): 7}))
    whole, short = {"other": 7, "optimizer": 7}, {"optimizer": 7}
    assert ran.phases_ns() == [whole, whole, short, whole, whole, short]


def test_every_share_is_exact_at_once() -> None:
    """Different amounts in every phase do not get into each other's way."""
    amounts = {FETCH: 1, TRANSFER: 10, FORWARD: 100, SLOW_HOOK: 1000, "run_training_batch": 10_000}
    ran = Replayed("automatic", inside(amounts))
    batch = {"data_wait": 1, "h2d": 10, "forward": 100, "callbacks": 1000, "other": 10_000}
    twice = {label: 2 * amount for label, amount in batch.items()}
    assert ran.phases_ns() == [twice, twice, batch, twice, twice, batch]
    assert ran.boundaries.hooks_ns() == {"At.on_train_batch_end": 10_000}


@pytest.mark.parametrize(
    ("action", "gap", "times"),
    [
        ("[_EvaluationLoop].val_next", "validation", 2),
        ("[Strategy]SingleDeviceStrategy.validation_step", "validation", 2),
        ("save_checkpoint", "checkpoint", 2),
        (module(AUTOMATIC, "on_train_epoch_end"), "epoch_boundary", 2),
        (module(AUTOMATIC, "on_train_end"), "shutdown", 1),
        (module(AUTOMATIC, "on_fit_start"), "startup", 1),
    ],
)
def test_time_inside_what_is_no_training_is_a_gap(action: str, gap: str, times: int) -> None:
    """And no step knows of it."""
    ran = Replayed("automatic", inside({action: 7}))
    found = [(label, length) for label, length in ran.gaps_ns() if label != "sanity_check"]
    assert found == [(gap, 7)] * times
    assert ran.phases_ns() == [{}] * 6


def test_the_first_epochs_start_is_startup_and_the_seconds_is_the_boundary() -> None:
    """The same hook, before and after training has begun."""
    ran = Replayed("automatic", inside({module(AUTOMATIC, "on_train_epoch_start"): 7}))
    assert ran.gaps_ns() == [("startup", 7), ("epoch_boundary", 7)]


# The manual log: three batches; in each an optimizer's step that fails and is caught, then another.
def test_a_step_that_never_ended_does_not_outlive_its_training_step() -> None:
    """Lightning never says that the failed step is over; what follows has its own phases."""
    ran = Replayed("manual", after({FORWARD: 7}), manual=True)
    assert ran.micro_batches() == [1] * 3
    assert ran.phases_ns() == [{"other": 7}] * 3
    ran = Replayed(
        "manual", inside({FETCH: 5, "[Callback]TrainPerf.on_train_batch_end": 3}), manual=True
    )
    assert ran.phases_ns() == [{"data_wait": 5, "callbacks": 3}] * 3


def test_manual_optimizer_steps_are_optimizer_and_the_rest_is_forward() -> None:
    """Both the step that fails and the one that does not."""
    ran = Replayed("manual", inside({FORWARD: 100, "optimizer_step": 7}), manual=True)
    assert ran.phases_ns() == [{"forward": 100, "optimizer": 14}] * 3


# The log of unknown length: two epochs of two batches, fetched one ahead.
def test_a_loader_of_unknown_length_is_fetched_ahead_and_makes_no_phantom_step() -> None:
    """Twice before the second epoch's first step, and in vain before the last of each."""
    ran = Replayed("unknown_length", inside({FETCH: 7}))
    assert ran.micro_batches() == [1] * 4
    once, twice = {"data_wait": 7}, {"data_wait": 14}
    assert ran.phases_ns() == [once, once, twice, once]
    assert ran.gaps_ns() == []


# The log of an iterator: four batches in pairs, fetched inside `training_step`.
def test_a_fetch_inside_training_step_is_data_wait_of_that_step() -> None:
    """And the forward goes on after it."""
    amounts = {FETCH: 7, FORWARD: 100, "run_training_batch": 1000}
    ran = Replayed("dataloader_iter", inside(amounts), fetches_inside=True)
    assert ran.micro_batches() == [2, 2]
    assert ran.phases_ns() == [{"data_wait": 14, "forward": 200, "other": 2000}] * 2
    ran = Replayed("dataloader_iter", after({FETCH: 7}), fetches_inside=True)
    assert ran.phases_ns() == [{"forward": 14}] * 2


@pytest.mark.parametrize("log", ["automatic", "manual", "unknown_length", "dataloader_iter"])
def test_the_recorded_times_tile_and_agree_with_the_log_itself(log: str) -> None:
    """On the real times: all waits are the time between start and stop of the fetches."""
    recorded = json.loads((LOGS / f"{log}.json").read_text())
    names = [entry["name"] for entry in recorded["names"]]
    rows = recorded["rows"]
    until_next = [later[0] - row[0] for row, later in itertools.pairwise(rows)] + [0]
    # A `done` row lies between a start and a stop: its time passes with the row before it.
    passing = []
    for row, length in zip(rows, until_next, strict=True):
        if row[1] == "done":
            passing[-1] += length
        else:
            passing.append(length)
    times = iter(passing)
    settings = {"manual": log == "manual", "fetches_inside": log == "dataloader_iter"}
    ran = Replayed(log, lambda _kind, _name: next(times), **settings)
    assert ran.fit_ns == rows[-1][0] - rows[0][0]
    fetches = [row for row in rows if row[1] != "done" and names[row[2]] == FETCH]
    waited = sum(row[0] * (1 if row[1] == "stop" else -1) for row in fetches)
    assert sum(step.host_ns[Phase.DATA_WAIT] for step in ran.steps) == waited
