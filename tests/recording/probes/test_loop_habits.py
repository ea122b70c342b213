"""Gradients that are never zeroed, and validation with autograd on: learned once, for free."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.fits import read
from torch import nn

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.loop import LoopMonitor


Zero = Callable[[torch.optim.Optimizer], None]


def config(
    path: Path,
    *,
    zero: Zero,
    clip: bool = False,
    accumulate: int = 1,
    validate: contextlib.AbstractContextManager[object] | None = None,
) -> dict[str, object]:
    """What a plain loop of eight steps has learned about itself."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    monitor = LoopMonitor(path, report=False).watch(model, optimizer)
    with monitor:
        for number, rows in enumerate(monitor.batches([torch.ones(2, 4)] * 8 * accumulate)):
            model(rows).mean().backward()
            if (number + 1) % accumulate:
                continue
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
            zero(optimizer)
            monitor.end_step()
            if validate is not None:
                with monitor.phase("validation"), validate:
                    model(rows)
                    model(input=rows[:1])
    assert monitor.monitor.guard.faults == {}
    assert model.weight._post_accumulate_grad_hooks in (None, {})
    assert not optimizer._optimizer_step_post_hooks
    assert not model._forward_hooks
    return dict(summarize(Run.open(monitor.run)).run.config)


def never(optimizer: torch.optim.Optimizer) -> None:
    """Forgotten."""


def in_place(optimizer: torch.optim.Optimizer) -> None:
    """As it was done of old."""
    optimizer.zero_grad(set_to_none=False)


def to_none(optimizer: torch.optim.Optimizer) -> None:
    """As it is done now."""
    optimizer.zero_grad()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clip", [False, True])
def test_gradients_that_only_add_up_are_noticed(
    clip: bool,  # noqa: FBT001 pytest passes it by name
    accumulate: int,
    tmp_path: Path,
) -> None:
    """Also when they are clipped, and when several micro-batches make a step."""
    learned = config(tmp_path, zero=never, clip=clip, accumulate=accumulate)

    assert learned["gradients_zeroed"] is False


@pytest.mark.parametrize("zero", [in_place, to_none])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_gradients_that_are_zeroed_are_not_accused(
    zero: Zero, accumulate: int, tmp_path: Path
) -> None:
    """In either way, and once in several micro-batches."""
    assert "gradients_zeroed" not in config(tmp_path, zero=zero, accumulate=accumulate)


def test_with_two_optimizers_nothing_is_said(tmp_path: Path) -> None:
    """A generator's backward passes through its critic, whose gradients are zeroed later."""
    model = nn.Linear(4, 3)
    optimizers = [torch.optim.SGD([one], 0.1) for one in model.parameters()]
    monitor = LoopMonitor(tmp_path, report=False).watch(model, optimizers)
    with monitor:
        for rows in monitor.batches([torch.ones(2, 4)] * 5):
            model(rows).mean().backward()
            for optimizer in optimizers:
                optimizer.step()
            monitor.end_step()

    totals = read(monitor.run).totals
    assert "gradients_zeroed" not in totals.config


@pytest.fixture
def nothing_compiled() -> None:
    """Other tests of this process may have had something compiled."""
    torch._dynamo.utils.counters.clear()


@pytest.mark.usefixtures("nothing_compiled")
@pytest.mark.parametrize(
    ("around", "grad"),
    [
        (contextlib.nullcontext(), True),
        (torch.no_grad(), False),
        (torch.inference_mode(), False),
    ],
)
def test_validation_tells_whether_autograd_was_on_and_what_it_was_given(
    around: contextlib.AbstractContextManager[object],
    grad: bool,  # noqa: FBT001 pytest passes it by name
    tmp_path: Path,
) -> None:
    """By the forwards in the first one; those of training do not count."""
    learned = config(tmp_path, zero=to_none, validate=around)

    assert learned["validation_grad"] is grad
    assert (learned["validation_batches"], learned["validation_batch_size"]) == (2, 2)


def test_where_something_was_compiled_a_validation_is_not_looked_at(tmp_path: Path) -> None:
    """It may be this model under another name: a hook would be traced with it."""
    torch.compile(torch.nn.Linear(4, 3), backend="eager")(torch.ones(2, 4))

    learned = config(tmp_path, zero=to_none, validate=contextlib.nullcontext())

    assert "validation_grad" not in learned


def test_without_validation_nothing_is_said_about_it(tmp_path: Path) -> None:
    """Not looked at is not off."""
    assert "validation_grad" not in config(tmp_path, zero=to_none)


def test_the_optimizers_other_hooks_are_called_after_ours(tmp_path: Path) -> None:
    """Torch goes through them one by one: none may be removed from among them meanwhile."""
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    called: list[int] = []
    with LoopMonitor(tmp_path, report=False).watch(model, optimizer) as monitor:
        for rows in monitor.batches([torch.ones(2, 4)] * 4):
            if not called:
                optimizer.register_step_post_hook(lambda *_: called.append(1))
            model(rows).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.end_step()

    assert called == [1] * 4
