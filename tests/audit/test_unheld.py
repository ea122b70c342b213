"""Gradients of weights that no optimizer holds, in audits of real steps."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainperf.audit import audit_step


def model() -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


BATCH = torch.ones(8, 16)


def unheld(
    loss_of: Callable[[nn.Module, nn.Module], torch.Tensor], *, both: bool = False
) -> dict[str, set[str]]:
    """Parts of the rows that are so marked, by the model's name, of a step of a student alone."""
    student, teacher = model(), model()
    weights = [*student.parameters(), *(teacher.parameters() if both else ())]
    optimizer = torch.optim.SGD(weights, lr=0.1)

    def step() -> None:
        loss_of(student, teacher).backward()
        optimizer.step()

    marked: dict[str, set[str]] = {}
    for row in audit_step(step).operators:
        if row.unheld:
            marked.setdefault((row.module or "").partition(".")[0], set()).add(row.part)
    return marked


def apart(student: nn.Module, teacher: nn.Module) -> torch.Tensor:
    """Both are given the batch."""
    return (student(BATCH) - teacher(BATCH)).square().mean()


def perceptual(student: nn.Module, teacher: nn.Module) -> torch.Tensor:
    """Without the teacher's backward the student learns nothing."""
    return teacher(student(BATCH)).square().mean()


def frozen(student: nn.Module, teacher: nn.Module) -> torch.Tensor:
    """As it should be."""
    teacher.requires_grad_(requires_grad=False)
    return apart(student, teacher)


def adversarial(student: nn.Module, teacher: nn.Module) -> torch.Tensor:
    """What the teacher is given is what is learned."""
    return student(BATCH).mean() + teacher(BATCH.clone().requires_grad_()).mean()


@pytest.mark.parametrize(
    ("loss_of", "both", "marked"),
    [
        # Its name tells it from the student, which is of the same class.
        (apart, False, {"Sequential-2": {"forward", "backward"}, "": {"backward"}}),
        (apart, True, {}),
        (perceptual, False, {"Sequential-2": {"forward", "backward"}}),
        (frozen, False, {}),
        (adversarial, False, {"Sequential-2": {"forward", "backward"}}),
    ],
)
def test_a_teacher_has_gradients_for_nothing_where_nobody_uses_them(
    loss_of: Callable[[nn.Module, nn.Module], torch.Tensor],
    both: bool,  # noqa: FBT001 pytest passes it by name
    marked: dict[str, set[str]],
) -> None:
    """Nobody holds its weights; what it is given may need a gradient."""
    assert unheld(loss_of, both=both) == marked


class Adapted(nn.Module):
    """A layer whose weights nobody trains, and a narrow one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.low = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Their sum."""
        return torch.relu(self.base(x) + self.low(x))


@pytest.mark.parametrize(("times", "frozen"), [(1, False), (2, False), (1, True)])
def test_of_a_layer_amid_others_only_its_own_gradients_are_for_nothing(
    times: int,
    frozen: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """What it hands on is learned from; with several backwards they are added up."""
    adapted = nn.Sequential(Adapted(), Adapted())
    for each in adapted:
        each.base.requires_grad_(not frozen)
    optimizer = torch.optim.SGD([each.low.weight for each in adapted], lr=0.1)

    def step() -> None:
        for _ in range(times):
            adapted(BATCH).square().mean().backward()
        optimizer.step()

    rows = [row for row in audit_step(step).operators if row.part == "backward"]
    products = [row for row in rows if row.kind == "matmul" and ".base" in (row.module or "")]

    # Of the first layer nobody needs the gradient of what it is given.
    assert sum(row.calls for row in products if row.unheld) == (0 if frozen else 2 * times)
    assert sum(row.calls for row in products if not row.unheld) == times
    assert not any(row.unheld for row in rows if ".low" in (row.module or ""))


def test_a_part_of_one_model_is_named_and_not_the_model() -> None:
    """An encoder that was frozen by leaving its weights out of the optimizer."""
    whole = nn.ModuleDict({"encoder": model(), "head": nn.Linear(16, 1)})
    optimizer = torch.optim.SGD(whole["head"].parameters(), lr=0.1)

    def step() -> None:
        whole["head"](whole["encoder"](BATCH)).mean().backward()
        optimizer.step()

    paths = {row.unheld for row in audit_step(step, model=whole).operators}

    assert paths == {"", "ModuleDict.encoder"}


@pytest.mark.parametrize("steps", [True, False])
def test_where_an_optimizer_holds_copies_or_none_steps_nothing_is_said(
    steps: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """Of weights in half precision it holds masters; else nobody knows what one would hold."""
    student = model()
    masters = [weight.detach().clone().requires_grad_() for weight in student.parameters()]
    optimizer = torch.optim.SGD([*masters, *student[2].parameters()], lr=0.1)

    def step() -> None:
        student(BATCH).mean().backward()
        if steps:
            optimizer.step()

    assert not any(row.unheld for row in audit_step(step).operators)
