"""Gradients that are never zeroed, and validation with autograd on: learned once, for free."""

import contextlib
from collections.abc import Callable

import pytest
import torch
from support.live import HostFit
from torch import nn

from trainperf.core.phases import Gap
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.loop_habits import ValidationProbe, ZeroGradProbe
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose


Zero = Callable[[torch.optim.Optimizer], None]


def config(
    *,
    zero: Zero,
    clip: bool = False,
    accumulate: int = 1,
    validate: contextlib.AbstractContextManager[object] | None = None,
) -> dict[str, Scalar]:
    """What a fit of eight steps has learned about itself; another hook of the user's is heard."""
    model, rows, called = nn.Linear(4, 3), torch.ones(2, 4), []
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    fit = HostFit(ZeroGradProbe(optimizer), ValidationProbe(model), log_every=1)
    # Torch goes through them one by one: none may be removed from among them meanwhile.
    theirs = optimizer.register_step_post_hook(lambda *_: called.append(1))
    for number in range(1, 8 * accumulate + 1):
        fit.monitor.recorder.boundary()
        model(rows).mean().backward()
        complete = number % accumulate == 0
        if complete:
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
            zero(optimizer)
        fit.monitor.micro_batch(None, None, complete=complete)
        if complete and validate is not None:
            fit.monitor.recorder.enter_gap(Gap.VALIDATION)
            with validate:
                model(rows)
                model(input=rows[:1])
            fit.monitor.recorder.leave()
    fit.finish()
    theirs.remove()
    assert fit.monitor.guard.faults == {}
    assert len(called) == 8
    assert model.weight._post_accumulate_grad_hooks in (None, {})
    assert not optimizer._optimizer_step_post_hooks
    assert not model._forward_hooks
    return fit.totals.config


def never(optimizer: torch.optim.Optimizer) -> None:
    """Forgotten."""


def in_place(optimizer: torch.optim.Optimizer) -> None:
    """As it was done of old."""
    optimizer.zero_grad(set_to_none=False)


def to_none(optimizer: torch.optim.Optimizer) -> None:
    """As it is done now."""
    optimizer.zero_grad()


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    ("zero", "clip"), [(never, False), (never, True), (in_place, False), (to_none, False)]
)
def test_gradients_that_only_add_up_are_noticed(
    zero: Zero,
    clip: bool,  # noqa: FBT001 pytest passes it by name
    accumulate: int,
) -> None:
    """Also clipped, and of several micro-batches; who zeroes them in either way is not accused."""
    learned = config(zero=zero, clip=clip, accumulate=accumulate)

    assert learned.get("gradients_zeroed", True) is (zero is not never)


def test_with_two_optimizers_nothing_is_said() -> None:
    """A generator's backward passes through its critic, whose gradients are zeroed later."""
    model = nn.Linear(4, 3)
    optimizers = [torch.optim.SGD([each], 0.1) for each in model.parameters()]
    for several in (optimizers, optimizers[:1]):
        objects = FitObjects(device=torch.device("cpu"), module=model, optimizers=several)
        kinds = {type(probe) for probe in choose(objects, EVERYTHING).probes}
        assert (ZeroGradProbe in kinds) is (len(several) == 1)


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
        (None, None),
    ],
)
def test_validation_tells_whether_autograd_was_on_and_what_it_was_given(
    around: contextlib.AbstractContextManager[object] | None, *, grad: bool | None
) -> None:
    """By its forwards, not those of training; without one nothing is said: not looked at, not off.

    In two forwards each, of two samples and one.
    """
    learned = config(zero=to_none, validate=around)

    assert learned.get("validation_grad") is grad
    sizes = (learned.get("validation_batches"), learned.get("validation_batch_size"))
    assert sizes == ((None, None) if around is None else (2, 2))


def test_where_something_was_compiled_a_validation_is_not_looked_at() -> None:
    """It may be this model under another name: a hook would be traced with it."""
    torch.compile(torch.nn.Linear(4, 3), backend="eager")(torch.ones(2, 4))

    assert "validation_grad" not in config(zero=to_none, validate=contextlib.nullcontext())
