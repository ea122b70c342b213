"""What a forward computes more than once from the same values, in audits of real steps."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils import parametrizations, parametrize

from trainperf.audit import audit_step


BATCH, TIMES = torch.ones(4, 16), 5


def plain(*, dropout: float = 0.0) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(16, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 16))


def unrolled(cell: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A loop over time."""
    hidden = BATCH
    for _ in range(TIMES):
        hidden = cell(hidden)
    return hidden.sum()


def recurrence(model: nn.Module) -> torch.Tensor:
    """One layer."""
    return unrolled(model[0])


def orthogonal() -> nn.Sequential:
    """A layer whose weight is made anew in each pass."""
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(16, 16)))


def cached(model: nn.Module) -> torch.Tensor:
    """As it should be."""
    with parametrize.cached():
        return recurrence(model)


def twice(model: nn.Module) -> torch.Tensor:
    """Once more for a metric."""
    loss = model(BATCH).sum()
    with torch.no_grad():
        model(BATCH).argmax(1)
    return loss


def attended(dropout: float) -> Callable[[nn.Module], torch.Tensor]:
    """Attention, and a layer of what it returns."""

    def attend(model: nn.Module) -> torch.Tensor:
        heads = BATCH.view(1, 1, 4, 16)
        given = [scaled_dot_product_attention(heads, heads, heads, dropout_p=dropout) for _ in "ab"]
        return sum(model[0](each).sum() for each in given)

    return attend


def of_chunks(model: nn.Module) -> torch.Tensor:
    """Parts of one storage are different values."""
    return sum(model(part).sum() for part in torch.rand(8, 16).chunk(2))


def in_place(model: nn.Module) -> torch.Tensor:
    """What is written in place is another value."""
    batch, total = torch.ones(4, 16), torch.zeros(())
    with torch.no_grad():
        for _ in range(TIMES):
            total = total + model(batch).sum()
            batch.mul_(2)
    return total + model(batch).sum()


def of_an_array(model: nn.Module) -> torch.Tensor:
    """NumPy fills one array again and again."""
    array, total = np.zeros((4, 16), dtype=np.float32), torch.zeros(())
    for time in range(TIMES):
        array[:] = time
        total = total + model(torch.from_numpy(array)).sum()
    return total


def checkpointed(model: nn.Module) -> torch.Tensor:
    """What backward computes again has its own name."""
    return torch.utils.checkpoint.checkpoint(model, BATCH, use_reentrant=False).sum()


def kept_before(model: nn.Module) -> torch.Tensor:
    """What a policy said before it learns, and says now: the first has no graph to learn with."""
    with torch.no_grad():
        old = model(BATCH)
    return (model(BATCH) - old).sum()


def detached(model: nn.Module) -> torch.Tensor:
    """A critic judges what is made, once for itself and once for what has made it."""
    first, second, third = model
    made = first(BATCH)
    return sum(third(second(each)).sum() for each in (made.detach(), made))


def conjugate(model: nn.Module) -> torch.Tensor:
    """A lazy sign looks at the same memory."""
    wave, other = torch.rand(2, 4, 4, dtype=torch.complex64).unbind()
    return (wave @ other - wave @ other.conj()).abs().sum() + model(BATCH).sum()


KERNEL = torch.library.Library("test_values", "DEF")
KERNEL.define("fill(Tensor into, Tensor given) -> ()")
KERNEL.impl(
    "fill", lambda into, given: into.data.__setitem__(..., given), "CompositeExplicitAutograd"
)


def by_an_operator(model: nn.Module) -> torch.Tensor:
    """A collective, or an extension's operator, into what is read before and after."""
    buffer, total = torch.rand(16), model(BATCH).sum()
    for each in torch.rand(2, 16).unbind():
        torch.ops.test_values.fill(buffer, each)
        total = total + buffer.exp().sum()
    return total


def by_a_kernel(model: nn.Module) -> torch.Tensor:
    """One that no dispatcher sees fills buffers of zeros."""
    total = model(BATCH).sum()
    for time in range(2):
        buffer = torch.zeros(16)
        buffer.numpy()[:] = time
        total = total + (buffer + model[0].bias).sum()
    return total


def added_alike(model: nn.Module) -> torch.Tensor:
    """Equal values in two tensors, then in one that is given twice."""
    first, second, third = (torch.arange(4.0).add(1) for _ in range(3))
    torch._foreach_add_([first, second], 1.0)
    torch._foreach_add_([third, third], 1.0)
    return model(BATCH).sum()


def repeated(loss_of: Callable[[nn.Module], torch.Tensor], model: nn.Module) -> dict[str, int]:
    """Operators that compute something again, with their calls."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss_of(model).backward()
        optimizer.step()

    calls: dict[str, int] = {}
    for row in audit_step(step).operators:
        if row.again and not row.constant and row.part == "forward":
            calls[row.short_name] = calls.get(row.short_name, 0) + row.again
    return calls


@pytest.mark.parametrize(
    ("loss_of", "model", "calls"),
    [
        pytest.param(
            recurrence,
            orthogonal(),
            dict.fromkeys(("tril", "sub", "linalg_matrix_exp", "mm"), TIMES - 1),
            id="a parametrized weight",
        ),
        pytest.param(cached, orthogonal(), {}, id="the same, cached"),
        pytest.param(recurrence, plain(), {}, id="a recurrence"),
        pytest.param(twice, plain(), {"addmm": 2, "relu": 1}, id="a second forward"),
        pytest.param(twice, plain(dropout=0.5), {"addmm": 1}, id="up to what is drawn"),
        pytest.param(
            attended(0.0),
            plain(),
            {"_scaled_dot_product_flash_attention_for_cpu": 1, "addmm": 1, "sum": 1},
            id="attention",
        ),
        pytest.param(
            attended(0.5),
            plain(),
            {"mul": 2, "bmm": 1, "_safe_softmax": 1},
            id="attention up to its dropout",
        ),
        pytest.param(of_chunks, plain(), {}, id="chunks"),
        pytest.param(in_place, plain(), {}, id="in place"),
        pytest.param(of_an_array, plain(), {}, id="NumPy"),
        pytest.param(checkpointed, plain(), {}, id="checkpointing"),
        pytest.param(kept_before, plain(), {}, id="before it learns"),
        pytest.param(detached, nn.Sequential(*plain(), nn.ReLU())[:3], {}, id="for another"),
        pytest.param(conjugate, plain(), {}, id="a conjugate"),
        pytest.param(by_an_operator, plain(), {}, id="of an operator that writes"),
        pytest.param(by_a_kernel, plain(), {}, id="of a kernel that writes"),
        pytest.param(added_alike, plain(), {}, id="aliases"),
    ],
)
def test_what_is_computed_again(
    loss_of: Callable[[nn.Module], torch.Tensor], model: nn.Module, calls: dict[str, int]
) -> None:
    """From the same values, by an operator that draws nothing, in one forward."""
    assert repeated(loss_of, model) == calls


def test_backward_of_what_is_computed_again() -> None:
    """Of the calls that have made a graph again: a forward for a metric has none."""
    model = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh())

    def step() -> None:
        loss = model(BATCH).sum() + model(BATCH).mean()
        with torch.no_grad():
            model(BATCH)
        loss.backward()

    rows = [row for row in audit_step(step).operators if row.again]
    assert sorted((row.short_name, row.part, row.again, row.calls) for row in rows) == [
        ("mm", "backward", 1, 2),
        ("mm", "forward", 1, 1),
        ("mm", "forward", 1, 2),
        ("tanh", "forward", 1, 1),
        ("tanh", "forward", 1, 2),
        ("tanh_backward", "backward", 1, 2),
    ]


def test_another_backward_is_another_forward() -> None:
    """Micro-batches make a weight once each."""
    layer = orthogonal()

    def step() -> None:
        for _ in range(3):
            layer(BATCH).sum().backward()

    assert not any(row.again for row in audit_step(step).operators)


def test_what_an_update_computes_is_no_part_of_a_forward() -> None:
    """A norm that it logs, of the weights that the next forward regularizes."""
    layer = nn.Linear(16, 16)

    class Logging(torch.optim.SGD):
        @torch.no_grad()
        def step(self) -> None:
            super().step()
            self.norm = layer.weight.norm()

    optimizer = Logging(layer.parameters(), lr=0.1)

    def step() -> None:
        layer(BATCH).sum().backward()
        optimizer.step()
        layer.weight.norm()

    assert not any(row.again for row in audit_step(step).operators)


def test_targets_that_a_loss_ignores() -> None:
    """As a share of its rows; not where classes have weights, whose sum is no number of rows."""
    labels, logits = torch.tensor([1, -100, -100, 2]), torch.zeros(4, 8)
    for weight, share in ((None, 0.5), (torch.full((8,), 3.0), 0.0)):
        audit = audit_step(lambda w=weight: cross_entropy(logits, labels, weight=w))
        assert [r.ignored for r in audit.operators if r.short_name == "nll_loss_forward"] == [share]
