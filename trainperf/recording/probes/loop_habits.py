"""Habits of a training loop that waste time, checked once through short-lived hooks.

`gradients_zeroed` is `False` when gradients go on adding up after an update: learned between the
first two updates, from the version that torch counts in every tensor, so no device is waited for.
`validation_grad` is whether autograd was on when a plain loop first validated its model.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from trainperf.core.phases import Gap
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.compilation import backwards_captured, graphs_built
from trainperf.recording.probes.plain_loop import FirstForwardHook, is_compiled
from trainperf.recording.process_objects import UntracedHook
from trainperf.recording.recorder import Draft, Recorder


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
        self._handles: list[RemovableHandle] = []
        self._left: tuple[int, int] | None = None
        """Memory and version of the gradient when it was last seen."""
        self._added = self._fresh = 0
        self._zeroed: bool | None = None

    def attach(self, recorder: Recorder) -> None:
        """Wait for the first update."""
        super().attach(recorder)
        self._handles = [self._optimizer.register_step_post_hook(self.shield(self._updated))]

    def detach(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Nothing is left to be seen after the second update.  Every flush."""
        del drafts
        if self._zeroed is not None:
            self.detach()

    def config(self) -> dict[str, Scalar]:
        """Only what is wrong is certain: a gradient may be changed and not be zeroed."""
        return {"gradients_zeroed": False} if self._zeroed is False else {}

    def _updated(self, *hook: object) -> None:
        del hook
        if self._zeroed is not None:
            return
        if self._added:
            # The optimizer goes through its hooks right now: they are removed with the next flush.
            self._zeroed = bool(self._fresh)
            return
        groups = self._optimizer.param_groups
        parameters = [
            parameter
            for group in groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if not parameters or len(self._handles) > 1 or backwards_captured():
            return
        smallest = min(parameters, key=Tensor.numel)
        self._left = _state(smallest)
        hears = UntracedHook(self.shield(self._accumulated))
        self._handles.append(smallest.register_post_accumulate_grad_hook(hears))

    def _accumulated(self, parameter: Tensor) -> None:
        """A gradient was added to: by nothing else since, if only that is new."""
        now = _state(parameter)
        if self._left is not None and now is not None:
            memory, version = self._left
            self._added += 1
            self._fresh += now != (memory, version + 1)
            self._left = now


class ValidationProbe(Probe):
    """Looks at the model's first forward inside validation; not where anything was compiled.

    A model may be compiled under another name (`step = torch.compile(model)`), or in a function:
    what hooks it then is traced with it.

    Args:
        module: The model as the loop calls it.
    """

    name: ClassVar[str] = "validation"

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._handle: RemovableHandle | None = None
        self._grad: bool | None = None

    def detach(self) -> None:
        """Leave no hook behind."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """Hook the model for this gap, until a validation was seen."""
        self.detach()
        compiled = is_compiled(self._module) or graphs_built()
        if begins and self._grad is None and not compiled:
            hook = FirstForwardHook(self.shield(self._look))
            self._handle = self._module.register_forward_pre_hook(hook)

    def config(self) -> dict[str, Scalar]:
        """Whether autograd was on, once a validation was seen."""
        return {} if self._grad is None else {"validation_grad": self._grad}

    def _look(self, *hook: object) -> None:
        del hook
        if self._grad is None and self.recorder.slot == Gap.VALIDATION:
            self._grad = torch.is_grad_enabled()
            self.detach()


def _state(parameter: Tensor) -> tuple[int, int] | None:
    gradient = parameter.grad
    return None if gradient is None else (gradient.data_ptr(), gradient._version)  # noqa: SLF001 torch's only count of changes
