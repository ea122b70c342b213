"""State of a training that a trial must not change: weights, optimizers, random generators."""

import copy
import random
from collections.abc import Iterable
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
        optimizers: Iterable[Optimizer],
        others: Iterable[Stateful] = (),
    ) -> None:
        self._tensors = [(tensor, _copy(tensor)) for tensor in _tensors(module)]
        self._gradients = [
            (parameter, None if parameter.grad is None else _copy(parameter.grad))
            for parameter in module.parameters()
        ]
        self._training = [(part, part.training) for part in module.modules()]
        self._optimizers = [_OptimizerState(optimizer) for optimizer in optimizers]
        self._others = [(other, copy.deepcopy(other.state_dict())) for other in others]
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002 the user's own
        self._torch = torch.get_rng_state()
        self._on_devices = random_states()

    @property
    def device_bytes(self) -> int:
        """What the copies take on accelerators."""
        kept = [copied for _, copied in self._tensors]
        kept += [gradient for _, gradient in self._gradients if gradient is not None]
        kept += [tensor for state in self._optimizers for tensor in state.copies()]
        return sum(each.nbytes for each in kept if each.device.type != "cpu")

    @torch.no_grad()
    def restore(self) -> None:
        """Put it back."""
        for tensor, kept in self._tensors:
            tensor.copy_(kept)
        for parameter, gradient in self._gradients:
            parameter.grad = None if gradient is None else gradient.clone()
        for part, training in self._training:
            part.training = training
        for state in self._optimizers:
            state.restore()
        for other, kept_state in self._others:
            other.load_state_dict(copy.deepcopy(kept_state))
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002 the user's own
        torch.set_rng_state(self._torch)
        set_random_states(self._on_devices)


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.preserve_format)


class _OptimizerState:
    """State and options of one optimizer.  Its own `load_state_dict` would convert types."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._state = {
            parameter: {name: (value, _kept(value)) for name, value in state.items()}
            for parameter, state in optimizer.state.items()
        }
        self._options = [
            copy.deepcopy({name: value for name, value in group.items() if name != "params"})
            for group in optimizer.param_groups
        ]

    def copies(self) -> list[torch.Tensor]:
        """The tensors among what is kept."""
        values = [kept for state in self._state.values() for _, kept in state.values()]
        return [value for value in values if isinstance(value, torch.Tensor)]

    def restore(self) -> None:
        state = self._optimizer.state
        for parameter in [each for each in state if each not in self._state]:
            del state[parameter]
        for parameter, values in self._state.items():
            state[parameter] = {name: _put_back(*pair) for name, pair in values.items()}
        for group, options in zip(self._optimizer.param_groups, self._options, strict=True):
            group.update(copy.deepcopy(options))


def _kept(value: object) -> object:
    return _copy(value) if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _put_back(value: object, kept: object) -> object:
    if not (isinstance(value, torch.Tensor) and isinstance(kept, torch.Tensor)):
        return copy.deepcopy(kept)
    return value.copy_(kept)
