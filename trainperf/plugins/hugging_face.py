"""The callback that `trainperf run` gives every Hugging Face `Trainer` of the script."""

from transformers import TrainerControl, TrainerState, TrainingArguments
from typing_extensions import override

from trainperf.core.steps.records import INTERRUPTED
from trainperf.huggingface import TrainPerfCallback
from trainperf.huggingface.disposable import handlers_of
from trainperf.recording.monitor import Monitor


class AutoTrainPerfCallback(TrainPerfCallback):
    """A `TrainPerfCallback`, which takes the options of the command.

    Where the script has one of its own, or a `LoopMonitor` around the Trainer, that one measures.
    """

    @override
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """A training that has raised before, e.g. without memory, is over."""
        self._end(INTERRUPTED)
        others = any(
            isinstance(callback, TrainPerfCallback) and callback is not self
            for handler in handlers_of(self)
            for callback in handler.callbacks
        )
        if not others and not Monitor.under_way:
            super().on_train_begin(args, state, control, **kwargs)
