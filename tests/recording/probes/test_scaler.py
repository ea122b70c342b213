"""Which updates a real GradScaler threw away, counted without asking the device."""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from support.live import HostFit
from torch.optim import Optimizer

from trainperf.core.phases import Tag
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose


Parameters = Sequence[torch.nn.Parameter]
CPU = torch.device("cpu")

KINDS: dict[str, Callable[[Parameters], Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "SGD fused": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "SGD foreach": lambda p: torch.optim.SGD(p, 0.1, foreach=True),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


class Loop:
    """A loop under a scaler that poisons the gradients of the optimizers it is told to."""

    def __init__(self, *kinds: str, log_every: int = 50) -> None:
        self.models = [torch.nn.Linear(3, 2) for _ in kinds]
        self.optimizers = [
            KINDS[kind](list(model.parameters()))
            for kind, model in zip(kinds, self.models, strict=True)
        ]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
        self.probe = ScalerProbe(self.scaler, self.optimizers, CPU)
        self.fit = HostFit(self.probe, log_every=log_every)
        self.updated: list[int] = []
        """How many optimizers changed their parameters in each step: the truth."""

    def backward(self, *poisoned: int) -> None:
        """Gradients, some of them infinite."""
        for number, model in enumerate(self.models):
            self.scaler.scale(model(torch.ones(4, 3)).square().mean()).backward()
            if number in poisoned:
                torch.nn.utils.parameters_to_vector(model.parameters())
                next(model.parameters()).grad.fill_(torch.inf)  # type: ignore[union-attr]

    def update(self, *, new_scale: float | None = None) -> None:
        """Step every optimizer under the scaler."""
        before = [model.weight.detach().clone() for model in self.models]
        for optimizer in self.optimizers:
            self.probe.attempt(optimizer)
            self.scaler.step(optimizer)
        self.scaler.update(new_scale)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        pairs = zip(before, self.models, strict=True)
        self.updated.append(sum(not torch.equal(was, model.weight) for was, model in pairs))

    def step(self, *poisoned: int, micro_batches: int = 1, new_scale: float | None = None) -> None:
        """A whole step."""
        for number in range(micro_batches):
            self.fit.monitor.recorder.boundary()
            self.backward(*poisoned)
            last = number == micro_batches - 1
            if last:
                self.update(new_scale=new_scale)
            self.fit.monitor.micro_batch(None, None, complete=last)


PLANTED = [(0,) if number % 4 == 1 else () for number in range(22)]
PAIRS = list(itertools.combinations(["SGD", "AdamW fused", "SGD fused"], 2))
CASES: list[tuple[tuple[str, ...], int, list[tuple[int, ...]], dict[str, float]]] = [
    *(((kind,), log_every, PLANTED, {}) for kind in KINDS for log_every in (1, 3, 50)),
    # The infinity is in one of several, and the others are updated.
    *((pair, 50, [(), (0,), (1,), (0, 1)], {}) for pair in PAIRS),
    # Only the last of a group steps; no other is an overflow.
    *(((kind,), n, [(), (0,), ()], {"micro_batches": 3}) for kind in KINDS for n in (1, 50)),
    # The textbook is blind where the loop sets the scale itself.
    *(((kind,), 50, [(0,), (), (0,)], {"new_scale": 512.0}) for kind in KINDS),
]


@pytest.mark.parametrize(("kinds", "log_every", "poisoned", "options"), CASES)
def test_planted_infinities_are_counted(
    kinds: tuple[str, ...],
    log_every: int,
    poisoned: list[tuple[int, ...]],
    options: dict[str, float],
) -> None:
    """Attempts, overflows and tags, in the very steps; also where `step()` runs and skips."""
    loop = Loop(*kinds, log_every=log_every)
    for numbers in poisoned:
        loop.step(*numbers, **options)
    fit = loop.fit.finish()

    assert loop.updated == [len(kinds) - len(numbers) for numbers in poisoned]
    assert fit.facts("attempts") == [len(kinds)] * len(poisoned)
    assert fit.facts("overflows") == list(map(len, poisoned))
    assert [bool(r.tags & Tag.OVERFLOW) for r in fit.sink.records] == list(map(bool, poisoned))


@EACH_KIND
def test_two_attempts_in_one_step_are_told_apart(kind: str) -> None:
    """A loop that tries again after an overflow, within the same batch."""
    loop = Loop(kind)
    loop.fit.monitor.recorder.boundary()
    for poisoned in ((0,), ()):
        loop.backward(*poisoned)
        loop.update()
    loop.fit.monitor.micro_batch(None, None, complete=True)
    fit = loop.fit.finish()

    assert fit.facts("attempts") == [2]
    assert fit.facts("overflows") == [1]


def test_attempts_may_be_announced_before_any_is_made() -> None:
    """One that is only announced yet has not overflowed."""
    loop = Loop("SGD", "AdamW")
    loop.fit.monitor.recorder.boundary()
    loop.backward()
    for optimizer in loop.optimizers:
        loop.probe.attempt(optimizer)
    for optimizer in loop.optimizers:
        loop.scaler.step(optimizer)
    loop.scaler.update()
    loop.fit.monitor.micro_batch(None, None, complete=True)
    fit = loop.fit.finish()

    assert fit.facts("attempts") == [2]
    assert fit.facts("overflows") == [0]


def test_a_step_without_an_attempt_is_none() -> None:
    """`training_step` returned nothing: the rate is not touched."""
    loop = Loop("SGD")
    loop.step()
    loop.fit.micro_batch()
    loop.optimizers[0].step()
    loop.fit.micro_batch()
    fit = loop.fit.finish()

    assert fit.facts("attempts") == [1, None, None]
    assert fit.facts("overflows") == [0, None, None]


class Wrapped(torch.optim.SGD):
    """An optimizer that holds another one, as look-ahead optimizers do."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, 0.1)
        self.optimizer = torch.optim.SGD(parameters, 0.1)


class Proxy:
    """Stands for an optimizer, as Lightning's own do."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer


@pytest.mark.parametrize("through", [Proxy, lambda optimizer: optimizer])
def test_an_optimizer_is_known_under_both_its_names(through: Callable) -> None:
    """By itself, or through what stands for it; also if it has an `optimizer` of its own."""
    model = torch.nn.Linear(2, 2)
    optimizer = Wrapped(list(model.parameters()))
    scaler = torch.amp.GradScaler("cpu")
    fit = HostFit(probe := ScalerProbe(scaler, [optimizer], CPU))
    fit.monitor.recorder.boundary()
    scaler.scale(model(torch.ones(2)).sum()).backward()
    probe.attempt(through(optimizer))
    scaler.step(optimizer)
    scaler.update()
    fit.monitor.micro_batch(None, None, complete=True)
    fit.finish()

    assert fit.facts("overflows") == [0]


@pytest.mark.parametrize("log_every", [2, 50])
def test_the_scale_is_read_once_a_group(log_every: int) -> None:
    """Without `get_scale()`; the last one read is the scaler's own."""
    loop = Loop("SGD", log_every=log_every)
    for poisoned in ((), (0,), (0,), ()):
        loop.step(*poisoned)
    fit = loop.fit.finish()

    scales = [scale for scale in fit.facts("loss_scale") if scale is not None]
    assert scales[-1] == loop.scaler.get_scale() == 256.0
    assert len(scales) <= 3


@pytest.mark.parametrize(
    "scaler",
    [None, torch.amp.GradScaler("cpu", enabled=False), object()],
    ids=["none", "off", "other"],
)
def test_without_a_scaler_overflows_do_not_apply(scaler: object) -> None:
    """Not zero percent: bf16 has none, and one that is switched off is none."""
    chosen = choose(FitObjects(device=CPU, scaler=scaler, precision="bf16"), EVERYTHING)

    assert chosen.scaler is None
    assert chosen.reasons["overflows"] == "not applicable: bf16 uses no GradScaler"
