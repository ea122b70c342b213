"""Training under a Hugging Face Trainer, as trials see it: in a process that is thrown away.

A Trainer counts the steps of an epoch where nobody can put them back.
"""

from functools import partial

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback
from typing_extensions import override

from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.loop.fit import stateful
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.process_objects import living
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.training import Mutable, Training, outermost_layers


MANY_STEPS, MANY_EPOCHS = 10**9, 10**6
"""Of a training that ends with its trials."""

_REPORTERS = "transformers.integrations"
_STEP_EVENTS = (
    "on_step_begin",
    "on_substep_end",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_step_end",
    "on_log",
)


class DisposableRun:
    """A Trainer whose training ends with its trials: nothing of it is saved or reported.

    Args:
        callback: Ours, by which its others are found.
    """

    def __init__(self, callback: TrainerCallback) -> None:
        self._callback = callback

    def without_end(self, args: TrainingArguments) -> None:
        """No limit on steps or epochs; a learning rate that warms up does not do so for ever."""
        if args.max_steps > 0:
            args.max_steps = MANY_STEPS
        else:
            args.num_train_epochs = MANY_EPOCHS
        for share in ("warmup_ratio", "warmup_steps"):
            if 0 < (getattr(args, share, 0) or 0) < 1:
                setattr(args, share, 0)
        args.ignore_data_skip = True  # a resumed epoch would have a loader of its own

    def without_reports(self) -> None:
        """No logs of it are kept: callbacks that write some hear nothing."""
        for handler in self._handlers():
            handler.callbacks = [
                callback
                for callback in handler.callbacks
                if not type(callback).__module__.startswith(_REPORTERS)
            ]

    def mutable(self) -> list[Mutable]:
        """The callbacks that do something in a step; a progress bar is among them."""
        callbacks = [callback for handler in self._handlers() for callback in handler.callbacks]
        return [
            Mutable(
                type(callback).__name__,
                partial(self._mute, callback),
                partial(self._unmute, callback),
            )
            for callback in callbacks
            if callback is not self._callback
            and not isinstance(callback, DefaultFlowCallback)
            and _acts_in_steps(callback)
        ]

    def _handlers(self) -> list[CallbackHandler]:
        """Who calls us: a callback is not told, so it is searched for."""
        return [
            each
            for each in living(CallbackHandler)
            if any(callback is self._callback for callback in each.callbacks)
        ]

    def _mute(self, callback: TrainerCallback) -> None:
        for handler in self._handlers():
            handler.callbacks = [other for other in handler.callbacks if other is not callback]

    def _unmute(self, callback: TrainerCallback) -> None:
        for handler in self._handlers():  # a progress bar is last, and shows what others logged
            handler.callbacks = [*handler.callbacks, callback]


class HuggingFaceTraining(Training):
    """The training of a Trainer.

    Args:
        objects: What it trains.
        source: Its batches.
        args: The Trainer's.
        state: The Trainer's.
        thrown_away: Its callbacks.
    """

    kind = HUGGING_FACE
    autocast_line = HUGGING_FACE.bf16

    def __init__(
        self,
        objects: FitObjects,
        source: BatchSource | None,
        args: TrainingArguments,
        state: TrainerState,
        thrown_away: DisposableRun,
    ) -> None:
        module = objects.module
        if not isinstance(module, nn.Module):
            raise TypeError(f"the Trainer trains no module ({type(module).__name__})")
        steps = args.gradient_accumulation_steps
        super().__init__(
            module, objects.optimizers, objects.device, source, steps, others=stateful(objects)
        )
        self.over = False
        """Whether all has been tried."""
        self._args, self._state = args, state
        self._thrown_away = thrown_away

    @override
    def end(self) -> None:
        self.over = True
        super().end()

    @property
    @override
    def computes_in_half(self) -> bool:
        return self._args.bf16 or self._args.fp16 or super().computes_in_half

    @override
    def callbacks(self) -> list[Mutable]:
        return self._thrown_away.mutable()

    @override
    def logging_interval(self) -> int | None:
        strategy = str(getattr(self._args.logging_strategy, "value", self._args.logging_strategy))
        return int(self._state.logging_steps) if strategy == "steps" else None

    @override
    def set_logging_interval(self, steps: int) -> None:
        self._state.logging_steps = steps

    @override
    def parts_to_compile(self) -> list[nn.Module]:
        """Not the model itself, whose hooks tell forward from the rest."""
        module = self.module
        return outermost_layers(
            module.module if isinstance(module, DistributedDataParallel) else module
        )


def _acts_in_steps(callback: TrainerCallback) -> bool:
    return any(
        getattr(type(callback), event, None) is not getattr(TrainerCallback, event, None)
        for event in _STEP_EVENTS
    )
