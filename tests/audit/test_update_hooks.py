"""Hooks around updates, taken away in the middle of one."""

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from trainperf.audit import Audit


def hooks() -> tuple[list[int], list[int]]:
    """Ids of those that hear of every update of the process."""
    before = torch_optimizer._global_optimizer_pre_hooks
    return list(before), list(torch_optimizer._global_optimizer_post_hooks)


def test_an_audit_that_ends_amid_an_update_leaves_the_training_alone() -> None:
    """A loop that runs unchanged hears of a step's end in a hook of the update itself."""
    others = hooks()
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    audit = Audit(model)
    handle = register_optimizer_step_post_hook(lambda *_: audit.__exit__())
    try:
        audit.__enter__()
        model(torch.ones(3, 4)).sum().backward()
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


def test_an_audit_that_begins_in_the_closure_of_an_update_leaves_the_training_alone() -> None:
    """Its forward is there, and its end comes in a hook of the same update."""
    others = hooks()
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    audit = Audit(model)
    handle = register_optimizer_step_post_hook(lambda *_: audit.__exit__())

    def closure() -> torch.Tensor:
        audit.__enter__()
        loss = model(torch.ones(3, 4)).sum()
        loss.backward()
        return loss

    try:
        optimizer.step(closure)
    finally:
        handle.remove()
    audit.release()

    assert hooks() == others
