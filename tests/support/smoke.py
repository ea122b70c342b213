"""Steps with a planted fault each, for the assertions to name by line."""

import torch


def reads_item(batch: torch.Tensor) -> float:
    """Waits on the line after this one."""
    return batch.sum().item()


def branches(batch: torch.Tensor) -> torch.Tensor:
    """Decides on the host what the device knows."""
    if batch.sum() > 0:
        return batch
    return -batch


def trains(batch: torch.Tensor, optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """A healthy step: keeps its loss on the device."""
    model(batch).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
