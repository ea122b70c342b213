"""Training under a Hugging Face Trainer, as trials see it: in a process that is thrown away.

A Trainer counts the steps of an epoch where nobody can put them back.
"""

from functools import partial
from typing import cast

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


def without_end(args: TrainingArguments) -> None:
    """Have a training end with its trials, and write nothing.

    No limit on steps or epochs; a learning rate that warms up does not do so for ever.
    """
    if args.max_steps > 0:
        args.max_steps = MANY_STEPS
    else:
        args.num_train_epochs = MANY_EPOCHS
    for share in ("warmup_ratio", "warmup_steps"):
        if 0 < (getattr(args, share, 0) or 0) < 1:
            setattr(args, share, 0)
    args.ignore_data_skip = True  # a resumed epoch would have a loader of its own
    args.report_to = []


def without_reports(callback: TrainerCallback) -> None:
    """No logs are kept: callbacks beside ours that write some hear nothing."""
    for handler in handlers_of(callback):
        kept = [c for c in handler.callbacks if not type(c).__module__.startswith(_REPORTERS)]
        handler.callbacks = kept


def handlers_of(callback: TrainerCallback) -> list[CallbackHandler]:
    """Who calls ours: a callback is not told, so it is searched for."""
    handlers = living(CallbackHandler)
    return [each for each in handlers if any(other is callback for other in each.callbacks)]


class HuggingFaceTraining(Training):
    """The training of a Trainer.

    Args:
        objects: What it trains.
        source: Its batches.
        args: The Trainer's.
        state: The Trainer's.
        callback: Ours, by which its others are found.
    """

    kind = HUGGING_FACE
    autocast_line = HUGGING_FACE.bf16

    def __init__(
        self,
        objects: FitObjects,
        source: BatchSource | None,
        args: TrainingArguments,
        state: TrainerState,
        callback: TrainerCallback,
    ) -> None:
        module = cast("nn.Module", objects.module)  # nothing else is tried
        steps = args.gradient_accumulation_steps
        super().__init__(
            module, objects.optimizers, objects.device, source, steps, others=stateful(objects)
        )
        self.over = False
        """Whether all has been tried."""
        self._args, self._state, self._callback = args, state, callback

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
        """Those that do something in a step; a progress bar is among them."""
        return [
            Mutable(type(other).__name__, partial(self._mute, other), partial(self._unmute, other))
            for handler in handlers_of(self._callback)
            for other in handler.callbacks
            if other is not self._callback
            and not isinstance(other, DefaultFlowCallback)
            and _acts_in_steps(other)
        ]

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

    def _mute(self, other: TrainerCallback) -> None:
        for handler in handlers_of(self._callback):
            handler.callbacks = [each for each in handler.callbacks if each is not other]

    def _unmute(self, other: TrainerCallback) -> None:
        for handler in handlers_of(self._callback):  # a progress bar is last
            handler.callbacks = [*handler.callbacks, other]


def _acts_in_steps(callback: TrainerCallback) -> bool:
    return any(
        getattr(type(callback), event, None) is not getattr(TrainerCallback, event, None)
        for event in _STEP_EVENTS
    )
