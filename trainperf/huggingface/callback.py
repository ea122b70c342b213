"""The callback that measures what a Hugging Face `Trainer` trains."""

import sys
import weakref
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from typing_extensions import override

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.steps.records import FINISHED, INTERRUPTED, ended_by
from trainperf.huggingface.disposable import without_end, without_reports
from trainperf.huggingface.session import MeasuredTraining
from trainperf.loop.fit import Fit
from trainperf.loop.options import FitOptions


@dataclass(kw_only=True, eq=False, repr=False)
class TrainPerfCallback(FitOptions, TrainerCallback, AbstractContextManager["TrainPerfCallback"]):
    """Measures everything that applies to what the Trainer trains.

    Takes the options of every fit: `trainperf.loop.FitOptions`.

    Phases: `data_wait` is the wait for the loader, `h2d` Accelerate's copy of the batch, `forward`
    goes from the model's call to the loss, `backward` to the last gradient (and what DDP does
    then), `optimizer` is `optimizer.step()`, `loop` what the Trainer does between backward and
    update (its check of the loss, clipping), and `callbacks` everything from the update to the next
    batch: callbacks, scheduler, `zero_grad`, logging.  The rest is `other`.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.

    A Trainer tells nobody that its training raised: the run is closed by the next training or the
    end of the process, and hooks on the model stay until the Trainer is gone.  Where the program
    goes on with the model, `with callback:` around `train()` ends both there.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._begun: Fit | None = None
        """A fit that has begun: what is done from then to the first batch is its startup."""
        self.training: MeasuredTraining | None = None
        """What is under measurement, between `on_train_begin` and `on_train_end`."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End a training that raised, with the name of what it raised."""
        self._end(INTERRUPTED if kind is None else ended_by(kind))

    @property
    def run(self) -> Path | None:
        """The run directory of the latest training; `None` before it, or where none is written."""
        return self.training.fit.run if self.training is not None else None

    @override
    def on_init_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """The Trainer was made: its sampler may read the whole dataset before the next event.

        Under `trainperf try` its training has no end but the trials'.
        """
        if not hasattr(sys, "ps1"):  # in a session that waits for its user that would be no startup
            self._begun = Fit(self)
        if self.launched().trials is not None:
            without_end(args)
            without_reports(self)

    @override
    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Model, optimizer and loader exist."""
        self._end(INTERRUPTED)
        begun, self._begun = self._begun or Fit(self), None
        if begun.tries:
            without_reports(self)
        self.training = MeasuredTraining(begun, self, state)
        # No event tells of a training that raised: its hooks go with the Trainer at the latest.
        weakref.finalize(state, begun.remove_hooks).atexit = False

    @override
    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """The training is over."""
        self._end()
        if self.training is not None and self.training.fit.tries:
            raise TrialsOver

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Everything inside belongs to a phase of this name, e.g. in a `rollout_func` of TRL.

        Nested phases pause the outer one; outside of a training it does nothing.
        """
        return nullcontext() if self.training is None else self.training.fit.phases[name]

    def _end(self, reason: str = FINISHED) -> None:
        if self.training is not None:
            self.training.fit.end(reason)
