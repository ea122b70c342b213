"""The callback that measures what a Hugging Face `Trainer` trains."""

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from typing_extensions import Self, override

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.places import storage
from trainperf.core.steps.records import FINISHED, INTERRUPTED, ended_by
from trainperf.huggingface.options import CallbackOptions, EarlyStart
from trainperf.huggingface.session import MeasuredTraining
from trainperf.huggingface.trials import DisposableRun, trial_options
from trainperf.meters import Meter
from trainperf.recording.extensions import Extensions
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.sinks.base import Sink
from trainperf.trials import Trial
from trainperf.trials.batch_source import TrialsOver


class TrainPerfCallback(TrainerCallback):
    """Measures everything that applies to what the Trainer trains.

    Phases: `data_wait` is the wait for the loader, `h2d` Accelerate's copy of the batch, `forward`
    goes from the model's call to the loss, `backward` to the last gradient (and what DDP does
    then), `optimizer` is `optimizer.step()`, `loop` what the Trainer does between backward and
    update (its check of the loss, clipping), and `callbacks` everything from the update to the next
    batch: callbacks, scheduler, `zero_grad`, logging.  The rest is `other`.

    Args:
        tokens: From the model's keyword arguments to a mask of shape (batch, tokens), where neither
            `attention_mask` nor `labels` tells which tokens count.
        dirpath: Directory under which the run directory is made, or its URL (`s3://…`); by default
            `output_dir`.
        log_every_n_steps: Steps between two points in TensorBoard; by default `logging_steps`.
        report: Whether to print the report when the fit ends.
        lines: Whether to sample the lines that the training thread is in, for 0.1 % of the time.
        machine: Whether to sample the machine, once a second, in a process of its own.
        audit_at: Number of a step, from 0, of which every operator is written to `audit.json`:
            it takes longer, and no statistic counts it.
        loader_anatomy: Whether to look into the loader before the first step, for two seconds:
            what a batch costs in `__getitem__`, collate and transport goes to `loader.json`.
        meters: Your own (`trainperf.meters.Meter`), in addition to the built-in ones.
        probes: Your own (`trainperf.recording.probes.base.Probe`), for facts of a step that your
            meters need.
        sinks: Your own (`trainperf.recording.sinks.base.Sink`): they get every step and reading.
        aggregate: Whether TensorBoard gets readings over all ranks, too, while training.
        trials: Changes of your own (`trainperf.trials.Trial`) that `trainperf try` switches on and
            off before the built-in ones.  In a training that goes on nothing is tried.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.

    A Trainer tells nobody that its training raised: the run is closed by the next training or the
    end of the process, and hooks on the model stay until the Trainer is gone.  Where the program
    goes on with the model, `with callback:` around `train()` ends both there.
    """

    def __init__(  # noqa: PLR0913 options that users name
        self,
        *,
        tokens: MaskFunction | None = None,
        dirpath: str | Path | None = None,
        log_every_n_steps: int | None = None,
        report: bool = True,
        lines: bool = True,
        machine: bool = True,
        audit_at: int | None = None,
        loader_anatomy: bool = False,
        meters: Sequence[Meter] = (),
        probes: Sequence[Probe] = (),
        sinks: Sequence[Sink] = (),
        aggregate: bool = False,
        trials: Sequence[Trial] | None = None,
    ) -> None:
        super().__init__()
        demand_mask(tokens)
        if log_every_n_steps is not None and log_every_n_steps < 1:
            raise ConfigError(
                f"log_every_n_steps={log_every_n_steps}: must be at least 1; leave it out to use "
                "logging_steps"
            )
        if audit_at is not None and audit_at < 0:
            raise ConfigError(f"audit_at={audit_at}: steps count from 0; try audit_at=20")
        launch = LaunchOptions.of_this_process().joined(
            dirpath=None if dirpath is None else str(dirpath),
            audit_at=audit_at,
            loader_anatomy=loader_anatomy,
        )
        tried = trial_options(trials)
        self._options = CallbackOptions(
            tokens=tokens,
            dirpath=None if launch.dirpath is None else storage(launch.dirpath),
            log_every=log_every_n_steps,
            report=report,
            lines=lines,
            machine=machine,
            audit=launch.audit_plan,
            loader_anatomy=launch.loader_anatomy,
            extensions=Extensions.of(meters, sinks, probes, aggregate=aggregate),
            trials=tried,
            thrown_away=DisposableRun(self),
        )
        self._begun: EarlyStart | None = None
        self.training: MeasuredTraining | None = None
        """What is under measurement, between `on_train_begin` and `on_train_end`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End a training that raised, with the name of what it raised."""
        if kind is None:
            self._end(INTERRUPTED)
        else:
            self._end(FINISHED if issubclass(kind, TrialsOver) else ended_by(kind))

    @property
    def run(self) -> Path | None:
        """The run directory of the latest training; `None` before it, or where none is written."""
        return self.training.run if self.training is not None else None

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
            self._begun = EarlyStart()
        if self._options.trials is not None:
            self._options.thrown_away.without_end(args)
            self._options.thrown_away.without_reports()

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
        if self._options.trials is not None:
            self._options.thrown_away.without_reports()
        begun, self._begun = self._begun, None
        self.training = MeasuredTraining(self._options, args, state, kwargs, begun)
        self.training.heard(vars(self))
        # No event tells of a training that raised: its hooks go with the Trainer at the latest.
        weakref.finalize(state, self.training.let_go).atexit = False

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
        if self._options.trials is not None:
            raise TrialsOver

    def _end(self, reason: str = FINISHED) -> None:
        if self.training is not None:
            self.training.finish(reason)
