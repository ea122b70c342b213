"""Ceilings: parts of the step that are left out, to see what they cost."""

from itertools import islice
from typing import Any

import pytest
import torch
from support.toy_training import everything, only, step, switched, training

from trainperf.trials.builtin import builtin_trials
from trainperf.trials.builtin.free_loader import free_loader
from trainperf.trials.builtin.logging_interval import logging_interval
from trainperf.trials.builtin.muted import muted
from trainperf.trials.builtin.no_transfer import on_device
from trainperf.trials.builtin.no_update import no_update
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


class Talkative(Training):
    """A training that logs, with loggers and callbacks that can be silenced."""

    interval, values_interval = 1, 1

    def __init__(self, *names: str) -> None:
        toy = training()
        super().__init__(toy.module, toy.optimizers, toy.device)
        self.quiet: set[str] = set()
        self.loggers = [self._part("csv"), self._part("board")]
        self.logs_every = self, "interval"
        self.callbacks = [self._part(name) for name in names]

    def set_values_interval(self, steps: int) -> None:
        """Of the step's own."""
        self.values_interval = steps

    def _part(self, name: str) -> Trial:
        return Trial(name, lambda: self.quiet.add(name), lambda: self.quiet.discard(name))


def test_without_updates_weights_stay_and_the_optimizer_counts_nothing() -> None:
    """And are updated again afterwards."""
    toy = training()

    def trained() -> list[Any]:
        step(toy)
        return [each.tolist() for each in toy.module.parameters()]

    before, during, after = switched(only(no_update(toy)), trained)
    assert before == during != after


def test_batches_come_from_memory_while_it_is_on_and_the_loader_waits() -> None:
    """It goes on with its next one."""
    toy = training(batches=[1, 2])
    loop, trial = toy.batches.over(iter(range(10, 20))), only(free_loader(toy))

    assert switched(trial, lambda: list(islice(loop, 5))) == [
        [10, 11, 12, 13, 14],
        [1, 2, 10, 11, 12],
        [15, 16, 17, 18, 19],
    ]


def test_all_loggers_each_of_them_and_each_callback_are_silenced() -> None:
    """Two callbacks of one name have two names."""
    toy = Talkative("timer", "timer")
    trials = muted(toy)
    _, quiet, _ = zip(*(switched(trial, toy.quiet.copy) for trial in trials), strict=True)

    assert [trial.id for trial in trials] == [
        "no_logging",
        "no_logger_csv",
        "no_logger_board",
        "no_callback_timer",
        "no_callback_timer_2",
    ]
    assert quiet == ({"csv", "board"}, {"csv"}, {"board"}, {"timer"}, {"timer"})
    assert not toy.quiet
    assert only(muted(training())).why_not() == "it has no logger"


def test_the_logging_interval_is_lengthened_and_put_back() -> None:
    """Only where it is shorter, and there is one."""
    toy = Talkative()
    trial = only(logging_interval(toy))
    assert switched(trial, lambda: toy.interval) == [1, 50, 1]
    toy.interval = 100

    assert trial.apply == "LoopMonitor(log_every_n_steps=50)"
    assert "100 steps already" in only(logging_interval(toy)).why_not()
    assert only(logging_interval(training())).why_not()


def test_values_that_the_step_logs_are_part_of_all_logging_and_are_logged_more_rarely() -> None:
    """Though the loggers get them every 100 steps only."""
    toy = Talkative()
    toy.logs_values, toy.interval = True, 100
    silent, trial = muted(toy)[0], only(logging_interval(toy))

    assert silent.title == "no logging (csv, board, self.log)"
    assert switched(silent, lambda: toy.values_interval) == [1, 0, 1]
    intervals = switched(trial, lambda: (toy.values_interval, toy.interval))
    assert intervals == [(1, 100), (50, 100), (1, 100)]
    assert trial.apply == "if batch_idx % 50 == 0: self.log(…)"


def test_a_batch_on_the_device_has_its_tensors_there_and_the_rest_as_it_was() -> None:
    """In whatever it comes."""
    batch = {"rows": (torch.zeros(2), [torch.ones(1)]), "name": "x"}
    moved: Any = on_device(batch, torch.device("meta"))

    assert moved["rows"][0].is_meta
    assert moved["rows"][1][0].is_meta
    assert moved["name"] == "x"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
def test_a_switch_of_any_that_applies_leaves_everything_as_it_was(
    kind: type[torch.optim.Optimizer],
) -> None:
    """On a model of convolutions, loaded from memory, updated in several ways."""
    toy = training(batches=[1, 2], optimizer=kind)
    before, changes = everything(toy), {}
    for trial in builtin_trials(toy):
        if trial.why_not():
            continue
        trial.on()
        changes[trial.id] = everything(toy) != before
        trial.off()
        trial.finish()
        assert everything(toy) == before, trial.id
    assert changes["optimizer_fused"]
    assert changes["optimizer_foreach"]
