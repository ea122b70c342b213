"""State of a training that a trial must not change: weights, optimizers, random generators."""

import copy
import random
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from trainperf.accelerators import random_states, set_random_states


RESTORED = "weights, buffers, gradients, optimizer, random generators"
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
    weights, gradients and optimizer state do.

    Args:
        module: Whose parameters, buffers and gradients are kept.
        optimizers: Whose state and options are kept.
        others: Schedulers and scalers.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        others: Iterable[Stateful] = (),
    ) -> None:
        self._tensors = [(each, _kept(each)) for each in (*module.parameters(), *module.buffers())]
        self._gradients = [(each, _kept(each.grad)) for each in module.parameters()]
        self._training = [(part, part.training) for part in module.modules()]
        # The `load_state_dict` of an optimizer would convert types.
        self._states = [
            (
                each,
                {
                    parameter: {name: (value, _kept(value)) for name, value in state.items()}
                    for parameter, state in each.state.items()
                },
            )
            for each in optimizers
        ]
        self._groups = [
            (group, {name: _kept(value) for name, value in group.items() if name != "params"})
            for each in optimizers
            for group in each.param_groups
        ]
        self._others = [(other, copy.deepcopy(other.state_dict())) for other in others]
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002 the user's own
        self._torch = torch.get_rng_state()
        self._on_devices = random_states()

    @property
    def device_bytes(self) -> int:
        """What the copies take on accelerators."""
        kept = [copied for _, copied in (*self._tensors, *self._gradients)]
        for _, states in self._states:
            kept += [copied for state in states.values() for _, copied in state.values()]
        tensors = [each for each in kept if isinstance(each, torch.Tensor)]
        return sum(each.nbytes for each in tensors if each.device.type != "cpu")

    @torch.no_grad()
    def restore(self) -> None:
        """Put it back."""
        for tensor, kept in self._tensors:
            tensor.copy_(kept)
        for parameter, gradient in self._gradients:
            parameter.grad = _kept(gradient)
        for part, training in self._training:
            part.training = training
        for optimizer, states in self._states:
            optimizer.state.clear()
            for owner, values in states.items():
                optimizer.state[owner] = {name: _put_back(*pair) for name, pair in values.items()}
        for group, options in self._groups:
            group.update(_kept(options))
        for other, kept_state in self._others:
            other.load_state_dict(copy.deepcopy(kept_state))
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002 the user's own
        torch.set_rng_state(self._torch)
        set_random_states(self._on_devices)


def _kept(value: Any) -> Any:  # noqa: ANN401 of the same type
    """A copy of a tensor, laid out as it is, or of anything else."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.preserve_format)
    return copy.deepcopy(value)


def _put_back(value: object, kept: object) -> object:
    if isinstance(value, torch.Tensor) and isinstance(kept, torch.Tensor):
        return value.copy_(kept)
    return copy.deepcopy(kept)
