"""Products whose order costs, and what keeps it as it is, in audits of real operators."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from trainperf.audit import audit_step


Chain = Callable[[Tensor, Tensor, Tensor], Tensor]

LENGTH, WIDTH = 100, 8


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Of each position for each."""
    return q @ k.transpose(-1, -2)


def divided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By the sums of the scores, as linear attention is."""
    weights = scores(q, k)
    return (weights @ v) / weights.sum(-1, keepdim=True)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal: the order cannot be another."""
    return (scores(q, k) * torch.ones(LENGTH, LENGTH).tril()) @ v


def read(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The scores are a part of the loss, too."""
    weights = scores(q, k)
    return weights @ v + weights.square().mean()


def part(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Some of the scores."""
    return scores(q, k)[..., :WIDTH] @ v[..., :WIDTH, :]


def low_rank(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As adapters are: `(x a) b`, through two numbers."""
    return linear(linear(q, k[0, 0, :2]), v[0, 0, :WIDTH, :2])


def layers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of one width, without anything between them."""
    return linear(linear(q, k[0, 0, :WIDTH]), v[0, 0, :WIDTH])


def heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A projection that is divided into heads."""
    projected = linear(q, k[0, 0].repeat(4, 1)[:64]).unflatten(-1, (8, 8)).transpose(-2, -3)
    return projected @ v[:, :, None, :WIDTH]


def added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A product to which another one is added."""
    return torch.addmm(scores(q, k)[0, 0], v[0, 0], v[0, 0].T)


@pytest.mark.parametrize(
    ("chain", "operators"),
    [
        (lambda q, k, v: scores(q, k) @ v, ["bmm", "bmm"]),
        (lambda q, k, v: scores(q, k) / 8 @ v, ["bmm", "div", "bmm"]),
        (lambda q, k, v: v.transpose(-1, -2) @ scores(q, k), ["bmm", "bmm"]),
        (lambda q, k, v: scores(q[0, 0], k[0, 0]) @ v[0, 0, :, 0], ["mm", "mv"]),
        (divided, ["bmm", "bmm", "sum"]),
        (lambda q, k, v: scores(q, k).softmax(-1) @ v, []),
        (lambda q, k, v: scores(q, k).sum(-1), []),
        (masked, []),
        (read, []),
        (part, []),
        (low_rank, []),
        (layers, []),
        (heads, []),
        (added, []),
    ],
)
def test_a_product_that_only_products_read_may_be_made_in_the_other_order(
    chain: Chain, operators: list[str]
) -> None:
    """Through numbers and sums, too; after a softmax, a mask or another reader it stays."""
    given = [torch.rand(2, 4, LENGTH, WIDTH, requires_grad=True) for _ in range(3)]

    rows = audit_step(lambda: chain(*given).sum().backward()).operators

    cheaper = [row for row in rows if row.reordered <= 0.5]
    assert [row.short_name for row in cheaper] == operators
    assert {row.part for row in cheaper} <= {"forward"}


def test_what_the_other_order_leaves_of_the_work_follows_from_the_shapes() -> None:
    """`k·p·(m + n)` of `m·n·(k + p)`: two of 25 for scores between heads of eight."""
    q, k, v = torch.rand(3, 2, 4, LENGTH, WIDTH).unbind()

    rows = audit_step(lambda: scores(q, k) @ v).operators

    assert [row.reordered for row in rows] == pytest.approx([0.08, 0.08])
