"""Forward and backward of the trained model: its own hook, and Accelerate's `backward`.

The Trainer has no event between the two.  Forward goes from the model's call to `backward`, so that
a loss computed outside the model is part of it; backward has what a parallel wrapper waits for.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import transformers

from trainperf.core.phases import FIRST_GAP
from trainperf.huggingface import moves
from trainperf.huggingface.moves import MOVES
from trainperf.loop.fit import Fit
from trainperf.loop.framework_objects import stand_in
from trainperf.recording.process_objects import UntracedHook, batch_of, nothing


Hears = Callable[..., object]
Place = tuple[Callable[[Hears], object], Hears]
"""What puts a function to where it is called, and the function: it may be timed there."""

_FORWARD, _BACKWARD = MOVES[moves.FORWARD].slot, MOVES[moves.BACKWARD].slot
_PASSES = (_FORWARD, _BACKWARD)
_LOOP = MOVES[moves.BACKWARD].next_slot


class Passes:
    """The passes of each micro-batch, its batch and its loss.

    What runs in every micro-batch needs no guard: it moves the timeline's slot.

    Args:
        fit: Whose phases they are.
    """

    def __init__(self, fit: Fit) -> None:
        self.backward_unseen = False
        """Whether a forward was not followed by Accelerate's `backward`."""
        self.batch: object = None
        """What the model was called with in this micro-batch."""
        self.loss: object = None
        """Of this micro-batch, as backward begins with it."""
        self.backward_begins: Hears = nothing
        self.backward_ends: Hears = nothing
        self._fit, self._recorder = fit, fit.recorder

    def attach(self, trainer: "transformers.Trainer", undo: ExitStack) -> list[Place]:
        """Hook the model as it is trained, and the Accelerator."""
        begins, module = UntracedHook(nothing), trainer.model_wrapped
        handle = module.register_forward_pre_hook(begins, prepend=True, with_kwargs=True)
        undo.callback(handle.remove)
        accelerator = trainer.accelerator
        stand_in(accelerator, "backward", self._bracketed(accelerator.backward), undo)
        return [
            (partial(setattr, begins, "act"), self._forward_begins),
            (partial(setattr, self, "backward_begins"), self._backward_begins),
            (partial(setattr, self, "backward_ends"), self._backward_ends),
        ]

    def _bracketed(self, backward: Callable[..., object]) -> Callable[..., object]:
        """Accelerate's `backward` with its phase around it."""

        def measured(loss: torch.Tensor, *args: Any, **options: Any) -> object:  # noqa: ANN401 its own
            self.backward_begins(loss)
            try:
                return backward(loss, *args, **options)
            finally:
                self.backward_ends()

        return measured

    def _backward_begins(self, loss: torch.Tensor) -> None:
        if self._recorder.slot < FIRST_GAP:
            self._fit.phases.rest(_BACKWARD)
            self.loss = loss.detach()

    def _backward_ends(self) -> None:
        if self._recorder.slot == _BACKWARD:
            self._fit.phases.rest(_LOOP)

    def _forward_begins(
        self, module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """A forward that is trained; further ones of the micro-batch are part of it."""
        slot = self._recorder.slot
        trains = module.training and torch.is_grad_enabled()
        if slot in _PASSES or slot >= FIRST_GAP or not trains:
            return
        self.batch = batch_of(args, kwargs)
        self._fit.phases.rest(_FORWARD)
        self._fit.begin_batch()
