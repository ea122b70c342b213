"""State of a training that a trial must not change: weights, optimizers, random generators."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.optim import Optimizer

from trainperf.accelerators import keep_random_state


RESTORED = "weights, buffers, optimizer, random generators"
"""What a snapshot holds, in words."""


@runtime_checkable
class Stateful(Protocol):
    """Anything whose state can be put back, e.g. a scheduler of learning rates."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Put it back."""


class Snapshot:
    """A copy of that state; `restore` puts it back, bit by bit, as often as one likes.

    Tensors are written in place: whoever holds one goes on holding it.  It takes as much memory as
    weights and optimizer state do.  Gradients are not in it: between two steps they are what the
    loop leaves of them, whatever was tried.

    Args:
        module: Whose parameters and buffers are kept.
        optimizers: Whose state and options are kept.
        others: Schedulers and scalers.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        others: Iterable[Stateful] = (),
    ) -> None:
        # The `load_state_dict` of an optimizer would convert types.
        states = [state for each in optimizers for state in each.state.values()]
        moments = [value for state in states for value in state.values() if torch.is_tensor(value)]
        self._tensors = [
            (each, each.detach().clone(memory_format=torch.preserve_format))
            for each in (*module.parameters(), *module.buffers(), *moments)
        ]
        self._states = [(each.state, _copied(each.state)) for each in optimizers]
        self._options = [
            (group, copy.deepcopy({name: group[name] for name in group if name != "params"}))
            for each in optimizers
            for group in each.param_groups
        ]
        self._others = [(other, copy.deepcopy(other.state_dict())) for other in others]
        self._put_random_back = keep_random_state()

    @property
    def device_bytes(self) -> int:
        """What the copies take on accelerators."""
        return sum(kept.nbytes for _, kept in self._tensors if kept.device.type != "cpu")

    @torch.no_grad()
    def restore(self, *, options: bool = True) -> None:
        """Put it back; without *options* an optimizer keeps those that a trial has switched."""
        for tensor, kept in self._tensors:
            tensor.copy_(kept)
        for state, values in self._states:
            state.clear()
            state.update(_copied(values))
        for group, kept_options in self._options if options else ():
            group.update(copy.deepcopy(kept_options))
        for other, kept_state in self._others:
            other.load_state_dict(copy.deepcopy(kept_state))
        self._put_random_back()


def _copied(state: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """State of an optimizer with the same tensors, and copies of anything else."""
    return {
        owner: {name: v if torch.is_tensor(v) else copy.deepcopy(v) for name, v in values.items()}
        for owner, values in state.items()
    }
