"""Fused and loop-free updates, switched on an optimizer that has taken steps."""

import pytest
import torch
from support.toy_training import only, step, training
from torch import nn

from trainperf.trials.builtin.optimizer import optimizer


@pytest.mark.parametrize("flag", ["fused", "foreach"])
def test_updates_are_the_same_but_for_rounding(flag: str) -> None:
    """With it and without, from the same weights and gradients."""
    toys = [training(), training()]
    only(optimizer(toys[0]), f"optimizer_{flag}").on()
    assert toys[0].optimizers[0].param_groups[0][flag] is True
    for toy in toys:
        torch.manual_seed(1)
        step(toy)

    for one, other in zip(*(toy.module.parameters() for toy in toys), strict=True):
        torch.testing.assert_close(one, other)


def test_counts_of_updates_are_where_the_update_wants_them() -> None:
    """A fused kernel counts in float32 next to the parameter; the other update reads them."""
    toy = training()
    state = next(iter(toy.optimizers[0].state.values()))
    state["step"] = state["step"].double()
    trial = only(optimizer(toy), "optimizer_fused")
    trial.on()
    step(toy)
    trial.off()
    step(toy)

    assert (state["step"].dtype, state["step"].tolist()) == (torch.float32, 3.0)


def test_what_torch_would_refuse_in_the_middle_of_a_step_is_not_tried() -> None:
    """Each with the reason that torch would give."""
    lbfgs = training(nn.Linear(2, 2), optimizer=torch.optim.LBFGS)
    fused = training(fused=True)
    differentiable = training(nn.Linear(2, 2), differentiable=True)
    sparse = training(nn.Embedding(4, 2, sparse=True), optimizer=torch.optim.SGD)
    reasons = [
        [trial.why_not() for trial in optimizer(toy)]
        for toy in (lbfgs, fused, differentiable, sparse)
    ]

    assert reasons[0] == ["LBFGS has no fused=", "LBFGS has no foreach="]
    assert reasons[1] == ["AdamW has fused=True already", "AdamW updates them together already"]
    assert all("differentiable" in reason for reason in reasons[2])
    assert "sparse" in reasons[3][0]
    assert not reasons[3][1]
