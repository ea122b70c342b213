"""What a trial must not change is put back bit by bit."""

import random

import numpy as np
import torch

from trainperf.trials.state import Snapshot


def train(module: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """Losses of some steps; every random generator has a part in them."""
    losses = []
    for _ in range(steps):
        shift = random.random() + float(np.random.rand())  # noqa: NPY002, S311
        loss = (module(torch.randn(8, 4)) - shift).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def model() -> torch.nn.Module:
    """Weights, buffers and a random mask."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
    )


def test_a_training_goes_on_as_if_nothing_had_been() -> None:
    """Its losses are equal to the last bit, however often it is restored."""
    torch.manual_seed(0)
    module = model()
    optimizer = torch.optim.AdamW(module.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    train(module, optimizer, 3)
    snapshot = Snapshot(module, [optimizer], [scheduler])
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    expected = train(module, optimizer, 4)

    for _ in range(2):
        snapshot.restore()
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        scheduler.step()
        train(module, optimizer, 5)
        snapshot.restore()
        assert scheduler.last_epoch == 0
        # Losses of training do not show running statistics, those of evaluation do.
        assert len(buffers) == 3
        for name, buffer in module.named_buffers():
            assert torch.equal(buffer, buffers[name]), name
        assert train(module, optimizer, 4) == expected


def test_state_that_came_with_the_first_step_is_gone_again() -> None:
    """Of an optimizer that has not updated yet."""
    module = model()
    optimizer = torch.optim.Adam(module.parameters())
    snapshot = Snapshot(module, [optimizer])
    train(module, optimizer, 2)
    snapshot.restore()

    assert not optimizer.state


def test_half_precision_weights_keep_the_full_precision_state_of_their_optimizer() -> None:
    """`Optimizer.load_state_dict` would convert it to the type of the weights."""
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    kept = torch.tensor([1.0001, 2.0002])
    optimizer.state[parameter]["momentum"] = kept.clone()
    module = torch.nn.Module()
    module.register_parameter("weight", parameter)
    snapshot = Snapshot(module, [optimizer])
    optimizer.state[parameter]["momentum"].zero_()
    snapshot.restore()

    assert torch.equal(optimizer.state[parameter]["momentum"], kept)
