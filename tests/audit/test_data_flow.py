"""What of a step does not follow from each other, and what one call of a module of torch makes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainperf.audit import audit_step


BATCH = torch.ones(4, 16)


class Loop(nn.Module):
    """Calls its modules as it is told."""

    def __init__(
        self, call: Callable[[nn.ModuleList, torch.Tensor], torch.Tensor], *widths: int
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 16)) for width in widths
        )
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All of them."""
        return self.call(self.parts, x)


def experts(parts: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Weighted, and added up in place."""
    out = torch.zeros_like(x)
    for number, part in enumerate(parts):
        out += x[:, number : number + 1] * part(x)
    return out


def heads(parts: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Each has its own input; side by side."""
    return torch.cat([part(x * number) for number, part in enumerate(parts)], dim=-1)


def routed(parts: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Rows of unlike number."""
    return torch.cat([part(x[number:]) for number, part in enumerate(parts)])


def layers(parts: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """One after the other, with what skips them."""
    for part in parts:
        x = x + part(x)
    return x


@pytest.mark.parametrize(
    ("call", "widths", "apart"),
    [
        (experts, (8, 8, 8, 8), True),
        (heads, (8, 8, 8, 8), True),
        (routed, (8, 8, 8, 4 + 4), True),
        (layers, (8, 8, 8, 8), False),
        (heads, (8, 8, 8, 4), False),
        (heads, (8, 8, 8), False),
    ],
    ids=["experts", "heads", "routed", "layers", "of unlike width", "three"],
)
def test_equal_modules_that_need_nothing_of_each_other_are_told_from_layers(
    call: Callable[[nn.ModuleList, torch.Tensor], torch.Tensor],
    widths: tuple[int, ...],
    apart: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """In forward and in backward, by the path of what they are in."""
    model = Loop(call, *widths)

    rows = audit_step(lambda: model(BATCH).sum().backward(), model=model).operators

    marked = {(row.siblings, row.part) for row in rows if row.siblings}
    parts = {("Loop.parts", "forward"), ("Loop.parts", "backward")}
    assert marked == (parts if apart else set())
    assert not any(row.siblings for row in rows if ".parts" not in (row.module or ""))


def one_by_one(model: nn.Module) -> None:
    """A backward for each row."""
    for row in BATCH:
        model(row[None]).square().sum().backward()


def frames(model: nn.Module) -> None:
    """One backward for all, and something done with each of them."""
    torch.stack([model(BATCH * time).tanh() for time in range(4)]).sum().backward()


def steps(model: nn.Module) -> None:
    """Each needs what was before it."""
    hidden = BATCH
    for _ in range(4):
        hidden = model(hidden)
    hidden.sum().backward()


def unlike(model: nn.Module) -> None:
    """Rows of unlike number."""
    for number in range(1, 5):
        model(BATCH[:number]).sum().backward()


def updated(model: nn.Module) -> None:
    """Another model each time."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for row in BATCH:
        model(row[None]).square().sum().backward()
        optimizer.step()


def normed(model: nn.Module) -> None:
    """Statistics of each batch go into the next one's."""
    model[1] = nn.BatchNorm1d(16)
    for time in range(4):
        model(BATCH * time).sum().backward()


@pytest.mark.parametrize(
    ("loop", "apart"),
    [
        (one_by_one, True),
        (frames, True),
        (steps, False),
        (unlike, False),
        (updated, False),
        (normed, False),
    ],
)
def test_calls_of_a_module_that_need_nothing_of_each_other_are_told_from_steps(
    loop: Callable[[nn.Module], None],
    apart: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """In forward and in backward, by the outermost module that is called so, and how often."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))

    rows = audit_step(lambda: loop(model), model=model).operators

    repeated = {(row.repeated, row.passes) for row in rows if row.part in ("forward", "backward")}
    assert (("Sequential", 4) in repeated) is apart
    assert apart or {row.repeated for row in rows} == {""}
    products = [row for row in rows if row.matmul_flops]
    assert all(row.repeated for row in products) is apart


@pytest.mark.parametrize(
    ("run", "inside"),
    [
        (lambda cells, x: cells(x[:, None].expand(-1, 24, -1))[0], True),
        (lambda cells, x: torch.cat([cells(x * n) for n in range(24)]), False),
    ],
    ids=["a recurrent module of torch", "a loop over a cell"],
)
def test_calls_within_one_call_of_a_module_of_torch_are_told_from_a_python_loop(
    run: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    inside: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """In forward and in backward."""
    cells = nn.GRU(16, 16, batch_first=True) if inside else nn.GRUCell(16, 16)

    rows = audit_step(lambda: run(cells, BATCH).sum().backward(), model=cells).operators

    often = [row for row in rows if row.calls >= 24 and row.module]
    assert {row.part for row in often} == {"forward", "backward"}
    assert all((row.in_call >= 8) is inside for row in often)


def test_what_a_module_of_torch_does_by_itself_is_marked() -> None:
    """Attention of several heads copies its projections; a product outside is its caller's."""
    model = nn.MultiheadAttention(16, 4, batch_first=True)

    def step() -> None:
        attended, _ = model(BATCH[None], BATCH[None], BATCH[None])
        (attended @ BATCH.T).sum().backward()

    rows = audit_step(step, model=model).operators

    assert any(row.short_name == "clone" for row in rows if row.composed)
    assert {row.module for row in rows if row.composed} == {"MultiheadAttention"}
    assert any(row.matmul_flops and not row.composed for row in rows)
