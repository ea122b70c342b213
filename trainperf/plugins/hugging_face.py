"""The callback that `trainperf run` gives every Hugging Face `Trainer` of the script."""

from transformers import TrainerControl, TrainerState, TrainingArguments
from typing_extensions import override

from trainperf.core.steps.records import INTERRUPTED
from trainperf.huggingface import TrainPerfCallback
from trainperf.recording.monitor import Monitor


class AutoTrainPerfCallback(TrainPerfCallback):
    """A `TrainPerfCallback`, which takes the options of the command.

    Where the script has one of its own, that one measures: all callbacks have heard of the
    beginning by the time when this one begins.
    """

    _awaits_epoch = False

    @override
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Wait for the others; one that has raised before, e.g. without memory, is over."""
        self._end(INTERRUPTED)
        self._awaits_epoch = True

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """The first epoch begins, and no batch of it has been fetched."""
        if self._awaits_epoch:
            self._awaits_epoch = False
            if not Monitor.under_way:
                super().on_train_begin(args, state, control, **kwargs)
                hears = vars(self).get("on_epoch_begin")  # by now what measures has its own
                if hears is not None:
                    hears(args, state, control, **kwargs)

    @override
    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """The training is over, of which another callback may have been the one that measured."""
        if self.training is not None:
            super().on_train_end(args, state, control, **kwargs)
