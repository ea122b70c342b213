"""Forward and backward of the trained model: its own hook, and Accelerate's `backward`.

The Trainer has no event between the two.  Forward goes from the model's call to `backward`, so that
a loss computed outside the model is part of it; backward has what a parallel wrapper waits for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator

from trainperf.core.phases import FIRST_GAP, Phase
from trainperf.huggingface import moves
from trainperf.huggingface.moves import MOVES
from trainperf.loop.fit import Fit
from trainperf.recording.hook_cost import HookCost
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.process_objects import UntracedHook, batch_of, living
from trainperf.recording.timeline import switch_to


_NEITHER, _FORWARD, _BACKWARD = -1, MOVES[moves.FORWARD].slot, MOVES[moves.BACKWARD].slot


class Passes:
    """The passes of each micro-batch, its batch and its loss.

    Both run in every micro-batch and need no guard: each moves the timeline's slot.

    Args:
        fit: Whose phases they are.
    """

    def __init__(self, fit: Fit) -> None:
        self.backward_unseen = False
        """Whether a forward was not followed by Accelerate's `backward`."""
        self.now = _NEITHER
        """The pass that goes on, as a phase."""
        self.batch: object = None
        """What the model was called with in this micro-batch."""
        self.loss: object = None
        """Of this micro-batch, as backward begins with it; read there where it is on the host."""
        self.untimed: list[Callable[[], object]] = []
        """What has the hooks run without a clock around them, while they are attached."""
        recorder = self._recorder = fit.recorder
        self._fit = fit
        self._watched = fit.phases.watches_backward
        self._reads = fit.chosen.clock is None
        """Whether a loss on the host is there, because no device is still to write it."""
        self._to_forward = switch_to(recorder, MOVES[moves.FORWARD].phase)
        self._to_backward = switch_to(recorder, MOVES[moves.BACKWARD].phase)
        self._to_loop = switch_to(recorder, MOVES[moves.BACKWARD].next_phase)

    def attach(
        self, module: object, optimizer: object, cost: HookCost
    ) -> list[Callable[[], object]]:
        """Hook the model as it is trained, and the Accelerator; returns what undoes that."""
        undo: list[Callable[[], object]] = []
        if isinstance(module, torch.nn.Module):
            begins = UntracedHook(cost.hook(self._forward_begins))
            hook = module.register_forward_pre_hook(begins, prepend=True, with_kwargs=True)
            self.untimed.append(partial(setattr, begins, "act", self._forward_begins))
            undo.append(hook.remove)
        accelerator = accelerator_of(module, optimizer)
        if accelerator is not None:
            before, backward = vars(accelerator).get("backward"), accelerator.backward
            timed = cost.timed(self.bracketed(cost.untimed(backward)))
            setattr(accelerator, "backward", timed)  # noqa: B010 a method, on one object
            self.untimed.append(lambda: _replace(accelerator, timed, self.bracketed(backward)))
            undo.append(lambda: _restore(accelerator, before))
        return undo

    def end(self) -> None:
        """Forward is over, and no backward was heard of."""
        self.now = _NEITHER
        self.backward_unseen = True
        self._recorder.rest(Phase.OTHER)
        self._fit.phases.mark(Mark.FORWARD_ENDS)

    def bracketed(self, backward: Callable[..., object]) -> Callable[..., object]:
        """Accelerate's `backward` with its phase around it.  Runs every micro-batch."""
        recorder, watched, reads = self._recorder, self._watched, self._reads
        to_backward, to_loop = self._to_backward, self._to_loop

        def measured(loss: torch.Tensor, *args: Any, **options: Any) -> object:  # noqa: ANN401 its own
            if recorder.draft is None or recorder.slot >= FIRST_GAP:
                return backward(loss, *args, **options)
            self.now = _BACKWARD
            to_backward()
            # A number is had for less than another tensor of it.
            there = reads and loss.is_cpu and not loss.ndim
            self.loss = loss.tolist() if there else loss.detach()
            if watched:
                self._fit.phases.mark(Mark.FORWARD_ENDS)
            try:
                return backward(loss, *args, **options)
            finally:
                if watched:
                    self._fit.phases.mark(Mark.BACKWARD_ENDS)
                    self._fit.phases.tail_ends()
                self.now = _NEITHER
                to_loop()

        return measured

    def _forward_begins(
        self, module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """A forward that is trained; further ones of the micro-batch are part of it."""
        recorder = self._recorder
        if self.now >= 0 or recorder.draft is None or not module.training:
            return
        if recorder.slot >= FIRST_GAP or not torch.is_grad_enabled():
            return
        self.now = _FORWARD
        self.batch = kwargs or batch_of(args, kwargs)
        self._to_forward()
        if self._fit.audit is not None:
            self._fit.begin_batch()


def accelerator_of(module: object, optimizer: object) -> Accelerator | None:
    """The Accelerator that has prepared them; a callback is not given it, so it is searched for."""
    for each in living(Accelerator):
        prepared = (*getattr(each, "_optimizers", ()), *getattr(each, "_models", ()))
        if any(other is optimizer or other is module for other in prepared):
            return each
    return None


def _replace(accelerator: Accelerator, ours: object, other: object) -> None:
    """Unless somebody has put something around ours since."""
    if vars(accelerator).get("backward") is ours:
        setattr(accelerator, "backward", other)  # noqa: B010 as above


def _restore(accelerator: Accelerator, before: object) -> None:
    if before is None:
        vars(accelerator).pop("backward", None)
    else:
        setattr(accelerator, "backward", before)  # noqa: B010 as above
