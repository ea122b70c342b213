"""Plain loops that know nothing of us: what hooks of PyTorch tell of them, and what they leave."""

import copy
import gc
import io
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.fits import awake
from support.frozen import frozen
from support.outside import end, hearing, network, updates, written
from support.threads import one_thread
from torch import Tensor, nn

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import Trials
from trainperf.core.launch_environment import (
    LaunchOptions,
    LaunchSignal,
    TrialLaunch,
    TrialsOver,
    signals_in,
)
from trainperf.core.phases import Tag
from trainperf.loop import LoopMonitor
from trainperf.plugins.outside_updates import ProcessUpdates


__all__ = ["frozen", "one_thread", "updates"]

NAP_S = 0.01


def nap() -> None:
    """Plant a cause of known size."""
    time.sleep(NAP_S)


def train(
    model: nn.Module,
    steps: int = 12,
    *,
    before: Callable[[], object] = awake,
    accumulated: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """A loop as its author wrote it."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulated):
            before()
            loss = nn.functional.cross_entropy(model(torch.ones(2, 4)), torch.tensor([0, 1]))
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


class Napping(nn.Module):
    """Sleeps in forward, where it is told to."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        """A layer."""
        if self.where == "forward":
            nap()
        return self.layer(x)


def test_a_step_is_an_update_and_the_first_begins_the_recording(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """Its micro-batches are counted, its loop is named, and the report says how it was seen."""
    train(network(), 12, accumulated=3)
    steps = written(updates, tmp_path)
    summary = summarize(Run.open(tmp_path / "out" / "trainperf"))

    assert [step.micro_batches for step in steps.steps] == [3] * 11
    assert {step.facts["samples"] for step in steps.steps} == {6}
    assert steps.end.reason == "finished"
    assert summary.run.loop.name == "outside"
    assert "coarse: recorded from outside" in summary.run.notes["data_wait"]
    assert LaunchSignal.RECORDED in signals_in(tmp_path / "words")


def test_a_validation_is_a_pause(updates: ProcessUpdates, tmp_path: Path) -> None:
    """Forwards without gradients between two steps; in every step they are part of it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def validate() -> None:
        with torch.no_grad():
            model(torch.ones(2, 4))

    for round_ in range(3):
        train(model, 4, optimizer=optimizer)
        if round_ < 2:
            validate()
    train(model, 4, before=validate, optimizer=optimizer)

    steps = written(updates, tmp_path)
    after = [step.index for step in steps.steps if step.tags & Tag.AFTER_VALIDATION]
    assert after[:2] == [3, 7]
    assert len(after) <= 3  # the first of those in every step is taken for one


def test_three_optimizers_in_a_row_are_one_loop_with_its_validation(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """As with an actor, a critic and a temperature: the last of them ends the step."""
    models = [network() for _ in range(3)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
    for number in range(12):
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum(model(torch.ones(2, 4)).sum() for model in models).backward()  # type: ignore[union-attr]
        for optimizer in optimizers:
            optimizer.step()
        if number == 7:
            with torch.no_grad():
                models[0](torch.ones(2, 4))

    steps = written(updates, tmp_path)
    # The first two ended a step while nobody knew of the third.
    assert len(steps.steps) == 13
    assert sum(bool(step.tags & Tag.AFTER_VALIDATION) for step in steps.steps) == 1


def test_an_optimizer_whose_first_update_raised_is_not_held(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """A script that tries again, smaller, has the memory for it, and is recorded."""

    class Failing(torch.optim.SGD):
        def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
            raise MemoryError

    failing = Failing(network().parameters(), lr=0.01)
    with pytest.raises(MemoryError):
        failing.step()
    held = weakref.ref(failing)
    del failing
    gc.collect()
    assert held() is None

    train(network(), 6)
    assert len(written(updates, tmp_path).steps) == 5


def test_a_loop_that_measures_itself_is_left_to_itself(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """What knows more is not disturbed."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with LoopMonitor(tmp_path / "own", report=False) as monitor:
        for _ in monitor.batches([0] * 8):
            train(model, 1, optimizer=optimizer)
            monitor.end_step()
    end(updates)

    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_models_keep_no_trace_of_it(updates: ProcessUpdates) -> None:
    """They are saved, copied and scripted as ever, also while the recording goes on."""
    model = network()
    train(model)

    torch.save(model, io.BytesIO())
    torch.jit.script(model)
    assert not copy.deepcopy(model)[0]._forward_hooks
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_a_compiled_model_is_compiled_as_ever(updates: ProcessUpdates, tmp_path: Path) -> None:
    """Whole, once, and without a warning."""
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    model = torch.compile(network(), backend=backend, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
        train(model)

    steps = written(updates, tmp_path)
    assert len(graphs) == 1
    assert min(steps.phase_s("forward")) > 0


def test_a_model_that_is_compiled_in_place_is_recorded(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """Its forward cannot be heard; its updates can."""
    model = Napping("")
    model.compile(backend="eager", fullgraph=True)
    train(model)

    steps = written(updates, tmp_path)
    assert len(steps.steps) == 11
    assert min(steps.phase_s("optimizer")) > 0
    assert "no forward" in steps.totals.notes["forward"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_scripted_module_that_the_loop_calls_is_none_of_its_passes(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """It changes a batch before the model is called; its parts are kept in another way."""
    scripted = torch.jit.script(nn.ReLU())
    train(network(), before=lambda: scripted(torch.ones(2)))

    steps = written(updates, tmp_path)
    assert not steps.totals.faults
    assert min(steps.phase_s("forward")) > 0


@pytest.mark.filterwarnings("ignore:Using `torch.compile.module.` when there are global hooks")
def test_a_model_that_is_compiled_amid_the_training_is_heard_by_its_new_name(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """The module that is called then is another one, around it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer=optimizer)
    train(torch.compile(model, backend="eager"), optimizer=optimizer)

    steps = written(updates, tmp_path)
    assert len(steps.steps) == 23
    assert min(steps.phase_s("forward")) > 0


def test_training_is_the_same_with_and_without(updates: ProcessUpdates) -> None:
    """Bit for bit."""
    states = []
    for recorded in (True, False):
        torch.manual_seed(3)
        model = network()
        if not recorded:
            end(updates)
        train(model)
        states.append(model.state_dict())

    for name, value in states[0].items():
        assert torch.equal(value, states[1][name])


def test_an_update_that_raises_does_not_end_the_recording(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """A script that goes on after it is recorded on."""

    class Failing(torch.optim.SGD):
        fails = False

        def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
            if self.fails:
                raise MemoryError
            return super().step(closure)

    model = network()
    optimizer = Failing(model.parameters(), lr=0.01)
    train(model, 4, optimizer=optimizer)
    optimizer.fails = True
    with pytest.raises(MemoryError):
        train(model, 1, optimizer=optimizer)
    optimizer.fails = False
    train(model, 4, optimizer=optimizer)

    assert len(written(updates, tmp_path).steps) == 7


def test_an_update_inside_an_update_is_part_of_it(updates: ProcessUpdates, tmp_path: Path) -> None:
    """Of an optimizer that steps another one, as SAM does, and then its own base class."""

    class Twofold(torch.optim.SGD):
        def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
            inner.step()
            return super().step(closure)

    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, 6, optimizer=Twofold(model.parameters(), lr=0.01))

    steps = written(updates, tmp_path)
    assert [step.micro_batches for step in steps.steps] == [1] * 5
    assert min(steps.phase_s("optimizer")[1:]) > 0
    assert not steps.totals.faults


def test_changes_are_tried_from_outside_and_unmade(tmp_path: Path) -> None:
    """Then the process ends; what takes batches says why it is not tried."""
    trials = TrialLaunch(minutes=0.003, only=("optimizer_foreach", "workers_N"))
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = LaunchOptions(dirpath=str(tmp_path), trials=trials)
    with hearing(options), pytest.raises(TrialsOver):
        train(model, 100_000, optimizer=optimizer)

    document = read_document(Trials, tmp_path / "trainperf")
    assert document.trying == ""
    results = {trial.id: trial for trial in document.trials}
    assert results["optimizer_foreach"].pairs > 0
    assert results["workers"].reason == "its batches cannot be taken over"
    assert optimizer.param_groups[0]["foreach"] is None


def test_a_loss_next_to_the_logits_is_recorded(updates: ProcessUpdates, tmp_path: Path) -> None:
    """As models return it that compute it themselves."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.layer(x)
            return logits, logits.sum()

    model = Both()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        _, loss = model(torch.ones(2, 4))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    steps = written(updates, tmp_path).steps
    assert [step.facts["loss"] for step in steps] == pytest.approx(losses[1:])


def test_a_batch_fetched_between_loss_and_backward_is_no_forward(
    updates: ProcessUpdates, tmp_path: Path
) -> None:
    """As nanoGPT does; a second module before backward goes on with forward."""
    model, head = Napping("forward"), network()

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.model(x)
            return logits, logits.sum()

    whole = WithLoss()
    parameters = [*whole.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(8):
        _, loss = whole(torch.ones(2, 4))
        nap()
        both = loss + head(torch.ones(2, 4)).sum()
        optimizer.zero_grad()
        both.backward()
        optimizer.step()

    steps = written(updates, tmp_path)
    assert min(steps.phase_s("other")) >= NAP_S
    # With the other nap in it each would be twice as long, whatever else the machine does.
    assert NAP_S <= min(steps.phase_s("forward")) < 1.5 * NAP_S
