"""Habits of a training loop that waste time, checked once through short-lived hooks.

`gradients_zeroed` is `False` when gradients go on adding up after an update: learned between the
first two updates, from the version that torch counts in every tensor, so no device is waited for.
Of validations `validation_grad` is whether autograd was on in the last one, `validation_batches`
how often the model was called on average, and `validation_batch_size` the most samples of a call.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainperf.audit.nested import tensors
from trainperf.core.phases import Gap
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.compilation import backwards_captured, graphs_built
from trainperf.recording.process_objects import is_compiled
from trainperf.recording.recorder import Draft


class ZeroGradProbe(Probe):
    """Watches one gradient from the first update to the second.

    With several optimizers nothing is said: a backward may pass through another one's parameters,
    whose gradients are zeroed later.

    Args:
        optimizer: The only one.
    """

    name: ClassVar[str] = "zero grad"

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._expected: tuple[int, int] | None = None
        """State of the gradient once it is added to, if nothing else happens to it."""
        self._fresh: list[bool] = []
        """Of each time it was added to: whether something had happened to it before."""
        self._over = False

    def begin(self) -> None:
        """Wait for the first update."""
        self.hear(self._optimizer.register_step_post_hook, self._updated)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Nothing is left to be seen after the second update.  Every flush."""
        # Not there: the optimizer is going through its hooks.
        if self._over:
            self.detach()

    def _updated(self, *_: object) -> None:
        self._over = bool(self._fresh)
        if self._over:
            # Only what is wrong is certain: a gradient may be changed and not be zeroed.
            if not any(self._fresh):
                self.learned["gradients_zeroed"] = False
        elif self._expected is None and not backwards_captured():
            parameters = [
                parameter
                for group in self._optimizer.param_groups
                for parameter in group["params"]
                if parameter.grad is not None
            ]
            if parameters:
                smallest = min(parameters, key=Tensor.numel)
                self._expected = _state(smallest, additions=1)
                self.hear(smallest.register_post_accumulate_grad_hook, self._accumulated)

    def _accumulated(self, parameter: Tensor) -> None:
        """A gradient was added to."""
        if not self._over:
            self._fresh.append(_state(parameter) != self._expected)
            self._expected = _state(parameter, additions=1)


class ValidationProbe(Probe):
    """Hears the model's forwards in validations; not where anything was compiled.

    A model may be compiled under another name (`step = torch.compile(model)`), or in a function:
    what hooks it then is traced with it.

    Args:
        module: The model as a validation calls it, with a wrapper or without.
    """

    name: ClassVar[str] = "validation"

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._batches = self._largest = self._validations = 0
        self._begins = False

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """Hook the model for this gap."""
        self.detach()
        self._begins = begins
        if begins and not graphs_built() and not is_compiled(self._module):
            self.hear(self._module.register_forward_hook, self._look, with_kwargs=True)

    def _look(self, _: object, args: object, kwargs: object, __: object) -> None:
        if self.recorder.slot == Gap.VALIDATION:
            given = next((each for each in tensors((args, kwargs)) if each.ndim), None)
            self.learned["validation_grad"] = torch.is_grad_enabled()
            self._largest = max(self._largest, 0 if given is None else len(given))
            self._validations += self._begins
            self._begins = False
            self._batches += 1
            if self._largest:
                self.learned.update(
                    validation_batches=self._batches / self._validations,
                    validation_batch_size=self._largest,
                )


def _state(parameter: Tensor, additions: int = 0) -> tuple[int, int] | None:
    """Memory and version of its gradient, after so many additions more."""
    gradient = parameter.grad
    return None if gradient is None else (gradient.data_ptr(), gradient._version + additions)  # noqa: SLF001 torch's only count of changes
