"""What is planted in a Hugging Face training comes back in its phase; nothing is left behind."""

import gc
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from weakref import WeakSet

import pytest
import torch
from support.hugging_face import Rows, Tiny, measured, quiet, trainer, written
from support.loops import read
from support.threads import one_thread
from transformers import Trainer, TrainerCallback

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.huggingface import TrainPerfCallback, session
from trainperf.huggingface.run_info import keeps_logits
from trainperf.plugins.hugging_face import AutoTrainPerfCallback
from trainperf.recording.monitor import Monitor


__all__ = ["one_thread"]

NAP_S = 0.01
RUNS = ("trainperf", "trainperf-1")


def nap() -> None:
    """Plant a cause of known size."""
    time.sleep(NAP_S)


class Napping(TrainerCallback):
    """Sleeps in events that a test names."""

    def __init__(self, *events: str) -> None:
        for event in events:
            setattr(self, event, lambda *_, **__: nap())


class SlowLoss(Trainer):
    """Computes the loss outside the model, and takes its time."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """After a nap."""
        loss = super().compute_loss(model, inputs, *args, **options)
        nap()
        return loss


def test_a_callback_of_several_trainers_measures_the_one_that_trains(tmp_path: Path) -> None:
    """As of folds: the Trainers before it are still there."""
    callback = quiet(dirpath=str(tmp_path))
    trainers = [trainer(tmp_path / str(number), callback) for number in range(2)]
    for each in trainers:
        each.train()
        assert min(written(callback).phase_s("forward")) > 0


@pytest.mark.parametrize(
    ("phase", "events", "planted"),
    [
        ("forward", [], {"kind": SlowLoss}),
        ("callbacks", ["on_log"], {"logging_strategy": "steps", "logging_steps": 1}),
    ],
    ids=["loss", "logging"],
)
def test_a_planted_nap_comes_back_in_its_phase(
    phase: str, events: list[str], planted: dict[str, Any], tmp_path: Path
) -> None:
    """In each step, and in no other phase."""
    found = measured(tmp_path, Napping(*events), **planted)

    steps = slice(2, -1)  # the last waits for no further batch, the first for two
    assert min(found.phase_s(phase)[steps]) >= NAP_S
    others = {"data_wait", "forward", "backward", "optimizer", "callbacks", "loop"} - {phase}
    for other in others:
        assert sorted(found.phase_s(other)[steps])[4] < NAP_S / 2, other


def test_an_evaluation_before_the_first_step_is_a_pause(tmp_path: Path) -> None:
    """`eval_on_start` announces nothing; transformers 5 has another one after the last step."""
    options = {"eval_strategy": "steps", "eval_steps": 100, "eval_on_start": True}
    found = measured(tmp_path, evaluated=Rows(4), **options)

    places = [gap.after_step for gap in found.gaps if gap.gap == "validation"]
    assert places[0] == -1
    assert set(places) <= {-1, 11}
    assert len(found.steps) == 12


def test_what_an_evaluation_is_given_and_keeps_is_known(tmp_path: Path) -> None:
    """Its batches, the largest of them, and whether all logits wait for a metric at its end."""
    callback = quiet()
    options = {"evaluated": Rows(6), "eval_strategy": "steps", "eval_steps": 4}
    training = trainer(tmp_path, callback, **options, per_device_eval_batch_size=4)
    training.train()

    config = written(callback).totals.config
    assert (config["validation_batches"], config["validation_batch_size"]) == (2, 4)
    assert not keeps_logits(training)
    training.compute_metrics = dict
    assert keeps_logits(training)


def test_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    """Bit for bit, also with dropout-like randomness in the sampler."""
    states = []
    for callbacks in ([], [quiet()]):
        training = trainer(tmp_path, *callbacks, seed=7)
        training.train()
        states.append(training.model.state_dict())

    for name, value in states[0].items():
        assert torch.equal(value, states[1][name])


def test_what_writes_for_tensorboard_ends_with_the_training(tmp_path: Path) -> None:
    """It has a thread of its own, besides the one of the Trainer's."""
    before = set(threading.enumerate())
    trainer(tmp_path, quiet(), report_to="tensorboard").train()

    assert set(threading.enumerate()) <= before
    (events,) = {file.parent for file in tmp_path.rglob("events.out.tfevents.*")}
    assert len(list(events.iterdir())) == 2


@pytest.mark.parametrize("broken", ["writer_of", "objects"])
def test_what_cannot_be_looked_at_first_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A Trainer writes with tensorboardX too, which PyTorch does not know."""
    monkeypatch.setattr(
        session, broken, Mock(side_effect=ImportError("no module named tensorboard"))
    )
    training = trainer(tmp_path, quiet())
    training.train()

    assert training.state.global_step == 12


def test_a_resumed_epoch_is_measured_too(tmp_path: Path) -> None:
    """Its loader is made anew: the wait is what lies between two steps, and the notes say so."""
    rows = Rows(60)
    trainer(tmp_path, rows=rows, save_strategy="steps", save_steps=4, max_steps=8).train()
    callback = quiet()
    training = trainer(tmp_path, callback, rows=rows, max_steps=12)
    training.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))

    found = written(callback)
    assert [step.micro_batches for step in found.steps] == [1] * 8
    assert all(wait > 0 for wait in found.phase_s("data_wait")[1:])
    assert "resumed" in found.totals.notes["data_wait"]


@pytest.mark.parametrize("kind", [TrainPerfCallback, AutoTrainPerfCallback])
def test_a_training_after_one_that_raised_has_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[TrainPerfCallback]
) -> None:
    """As a Trainer begins again with smaller batches where memory was short."""
    monkeypatch.setattr(Monitor, "under_way", WeakSet())
    training = trainer(tmp_path, kind(), model=Tiny(short_of_memory_at(4)))
    with pytest.raises(MemoryError):
        training.train()
    training.train()

    runs = [read(tmp_path / "out" / run / "steps-rank0.jsonl") for run in RUNS]
    assert [len(run.steps) for run in runs] == [4, 12]
    assert runs[0].end.reason == "interrupted"


def short_of_memory_at(number: int) -> Callable[[], None]:
    """What is planted in a model that raises in its call of that number."""
    calls = itertools.count()

    def planted() -> None:
        if next(calls) == number:
            raise MemoryError

    return planted


def hooks_of(model: torch.nn.Module) -> int:
    """Hooks on the modules of a model."""
    return sum(
        len(getattr(module, name))
        for module in model.modules()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    )


def test_a_training_that_raised_leaves_no_hook_behind_its_trainer(tmp_path: Path) -> None:
    """The model is still there, and somebody may go on with it."""
    model = Tiny(short_of_memory_at(4))
    callback = quiet()
    training = trainer(tmp_path, callback, model=model)
    with suppress(MemoryError):
        training.train()
    before = hooks_of(model)

    del training
    gc.collect()
    after = hooks_of(model)

    callback.training.fit.end("interrupted")
    assert before > 0
    assert after == 0


def test_compiling_that_was_lost_on_the_way_is_said(tmp_path: Path) -> None:
    """`torch_compile=True`, and the model is trained as it is written."""
    callback = quiet()
    training = trainer(tmp_path, callback, max_steps=4, torch_compile=True)
    training.accelerator.state.dynamo_plugin.backend = "NO"
    training.train()

    found = summarize(Run.open(callback.run or tmp_path))
    assert found.run.config["compiled"] is False
    assert "not_compiled" in [finding.id for finding in found.findings]
