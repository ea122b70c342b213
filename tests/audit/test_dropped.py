"""Gradients that are gone before an update reads them, in audits of real steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainperf.audit import audit_step
from trainperf.audit.stack_frames import place
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.groups import summed


BATCH = torch.ones(8, 16)


class Kernel(torch.optim.SGD):
    """Reads gradients as a library's kernel does, by no operator of torch."""

    def step(self, closure: Any = None) -> None:
        """Subtracts them."""
        assert closure is None
        for weight in self.param_groups[0]["params"]:
            weight.detach().numpy()[:] -= 0.1 * weight.grad.numpy()


class Pair:
    """A generator and a discriminator of two layers each, under an optimizer each."""

    def __init__(self, kind: type[torch.optim.SGD] = torch.optim.SGD) -> None:
        self.makes, self.judges = (
            nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(2)
        )
        self.of_makes = kind(self.makes.parameters(), lr=0.1)
        self.of_judges = kind(self.judges.parameters(), lr=0.1)

    def judge(self, fake: torch.Tensor, *, to_none: bool = True) -> None:
        """Train the discriminator; a graph that goes on is kept."""
        self.of_judges.zero_grad(set_to_none=to_none)
        self.judges(fake).mean().backward(retain_graph=True)
        self.of_judges.step()

    def make(self, fake: torch.Tensor, *, to_none: bool = True) -> None:
        """Train the generator."""
        self.of_makes.zero_grad(set_to_none=to_none)
        self.judges(fake).square().mean().backward()
        self.of_makes.step()

    def norm(self) -> torch.Tensor:
        """Of the generator's gradients."""
        return torch.stack([weight.grad.norm() for weight in self.makes.parameters()]).norm()  # type: ignore[union-attr]


def attached(pair: Pair) -> None:
    """What the discriminator learns from still hangs on the generator."""
    fake = pair.makes(BATCH)
    pair.judge(fake)
    pair.make(fake)


def attached_and_zeroed(pair: Pair) -> None:
    """The same, with gradients that stay and are zeroed."""
    fake = pair.makes(BATCH)
    pair.judge(fake, to_none=False)
    pair.make(fake, to_none=False)


def detached(pair: Pair) -> None:
    """As it should be."""
    fake = pair.makes(BATCH)
    pair.judge(fake.detach())
    pair.make(fake)


def generator_first(pair: Pair) -> None:
    """The discriminator's own gradients in the generator's backward are dropped."""
    fake = pair.makes(BATCH)
    pair.make(fake)
    pair.judge(fake.detach())


def generator_first_frozen(pair: Pair) -> None:
    """They are not made."""
    fake = pair.makes(BATCH)
    pair.judges.requires_grad_(requires_grad=False)
    pair.make(fake)
    pair.judges.requires_grad_(requires_grad=True)
    pair.judge(fake.detach())


def perturbed(pair: Pair) -> None:
    """For the gradient of an input those of all weights are made."""
    given = BATCH.clone().requires_grad_()
    pair.judges(given).mean().backward()
    pair.judge(given.detach() + given.grad.sign())


def perturbed_alone(pair: Pair) -> None:
    """For that gradient alone."""
    given = BATCH.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(pair.judges(given).mean(), given)
    pair.judge(given.detach() + gradient.sign())


def penalised(pair: Pair) -> None:
    """The gradient of an input is a part of the loss."""
    given = BATCH.clone().requires_grad_()
    scores = pair.judges(given).mean()
    (gradient,) = torch.autograd.grad(scores, given, create_graph=True)
    pair.of_judges.zero_grad()
    (scores + gradient.square().sum()).backward()
    pair.of_judges.step()


def penalised_behind(pair: Pair) -> None:
    """What the generator's backward has left lasts until after that gradient."""
    pair.make(pair.makes(BATCH))
    penalised(pair)


def overflowed(pair: Pair) -> None:
    """A scaler has looked at the gradients of an update that it skips."""
    scaler = torch.amp.GradScaler("cpu")
    for scale in (torch.inf, 1.0):
        pair.of_makes.zero_grad()
        scaler.scale(pair.makes(BATCH).mean() * scale).backward()
        scaler.step(pair.of_makes)
        scaler.update()


def two_losses(pair: Pair) -> None:
    """Their gradients are added up."""
    pair.of_makes.zero_grad()
    for _ in range(2):
        pair.makes(BATCH).mean().backward()
    pair.of_makes.step()
    pair.of_makes.zero_grad()


def logged(pair: Pair) -> None:
    """What a discriminator's loss does to the generator is looked at."""
    fake = pair.makes(BATCH)
    pair.judge(fake)
    pair.norm()
    pair.make(fake)


def kept_by_hand(pair: Pair) -> None:
    """Another variable holds what the weights no longer do, and it is looked at."""
    fake = pair.makes(BATCH)
    pair.judge(fake)
    kept = [weight.grad for weight in pair.makes.parameters()]
    pair.make(fake)
    torch.stack([gradient.norm() for gradient in kept if gradient is not None]).norm()


def not_updated(pair: Pair) -> None:
    """The generator is updated in other steps, maybe with these gradients."""
    pair.judge(pair.makes(BATCH))


def skipped(pair: Pair) -> None:
    """A step that is left out, as where a loss is no number."""
    pair.judge(BATCH)
    pair.makes(BATCH).mean().backward()
    pair.of_makes.zero_grad()


def made_by_hand(pair: Pair) -> None:
    """An update is for gradients that are made of others, as those of single samples."""
    pair.makes(BATCH).mean().backward()
    for weight in pair.makes.parameters():
        weight.grad = torch.ones_like(weight)
    pair.of_makes.step()


def twice(pair: Pair) -> None:
    """What the generator's backward makes for the discriminator is dropped in the second round."""
    for _ in range(2):
        fake = pair.makes(BATCH)
        pair.judge(fake.detach())
        pair.make(fake)


def rows_of(step: Callable[[Pair], None], pair: Pair) -> list[OperatorUse]:
    """What is dropped in a step of both, after one before it."""
    step(pair)
    both = nn.ModuleList([pair.makes, pair.judges])
    return [row for row in audit_step(lambda: step(pair), model=both).operators if row.dropped]


@pytest.mark.parametrize("kind", [torch.optim.SGD, Kernel])
@pytest.mark.parametrize(
    ("step", "dropped"),
    [
        # Two gradients of weights and what hands them on, from the discriminator's first layer on.
        (attached, {"0.0": 1, "0.2": 2, "1.0": 1}),
        (attached_and_zeroed, {"0.0": 1, "0.2": 2, "1.0": 1}),
        (detached, {}),
        (twice, {"1.0": 1, "1.2": 1}),
        (generator_first, {"1.0": 1, "1.2": 1}),
        (generator_first_frozen, {}),
        (perturbed, {"1.0": 1, "1.2": 1}),
        (perturbed_alone, {}),
        (penalised, {}),
        (overflowed, {}),
        (two_losses, {}),
        (logged, {}),
        (kept_by_hand, {}),
        (not_updated, {}),
        (skipped, {}),
        (made_by_hand, {}),
    ],
)
def test_products_for_gradients_that_are_dropped(
    step: Callable[[Pair], None], dropped: dict[str, int], kind: type[torch.optim.SGD]
) -> None:
    """By the layer that they are of; what is no operator of torch may read a gradient, too."""
    rows = rows_of(step, Pair(kind))

    layers = [(row.module or "").removeprefix("ModuleList.") for row in rows]
    products = summed(
        (layer, row.calls) for layer, row in zip(layers, rows, strict=True) if row.kind == "matmul"
    )

    assert products == dropped
    assert {row.part for row in rows} == ({"backward"} if dropped else set())


@pytest.mark.parametrize(
    ("step", "method"), [(attached, Pair.judge), (penalised_behind, Pair.make)]
)
def test_the_line_is_that_of_the_backward(
    step: Callable[[Pair], None], method: Callable[..., None]
) -> None:
    """Of the user's code, and of the one that has made them, whatever backward comes after it."""
    code = method.__code__

    lines = {row.dropped for row in rows_of(step, Pair())}

    assert lines == {place(code.co_filename, code.co_firstlineno + 3)}
