"""Hooks around updates, taken away in the middle of one."""

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from trainperf.audit import Audit


def hooks() -> tuple[list[int], list[int]]:
    """Ids of those that hear of every update of the process."""
    before = torch_optimizer._global_optimizer_pre_hooks
    return list(before), list(torch_optimizer._global_optimizer_post_hooks)


@pytest.mark.parametrize("begins_inside", [False, True])
def test_an_audit_that_ends_amid_an_update_leaves_the_training_alone(
    begins_inside: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """A loop that runs unchanged hears of a step's end in a hook of the update itself.

    Its forward may be in the update's closure: then the audit begins there.
    """
    others = hooks()
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    audit = Audit(model)
    handle = register_optimizer_step_post_hook(lambda *_: audit.__exit__())

    def forward_and_backward() -> torch.Tensor:
        audit.__enter__()
        loss = model(torch.ones(3, 4)).sum()
        loss.backward()
        return loss

    try:
        if begins_inside:
            optimizer.step(forward_and_backward)
        else:
            forward_and_backward()
            optimizer.step()
    finally:
        handle.remove()
    audit.release()

    assert hooks() == others
    parts = {use.part for use in audit.result(step=0).operators}
    assert parts == {"forward", "backward", "optimizer"}


def test_an_audit_that_ends_between_updates_leaves_no_hook() -> None:
    """Nothing has to be called after it."""
    others = hooks()
    model = nn.Linear(4, 2)
    with Audit(model):
        model(torch.ones(3, 4)).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()

    assert hooks() == others
