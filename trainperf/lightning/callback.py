"""Callbacks that measure a fit: everything of it, or one thing each."""

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
from typing_extensions import override

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import AuditPlan, LaunchOptions
from trainperf.core.places import storage
from trainperf.lightning.measurement import Measurement
from trainperf.lightning.session import Session
from trainperf.meters import Measure, Meter
from trainperf.recording.extensions import Extensions
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.loader import LoaderProbe
from trainperf.recording.probes.selection import EVERYTHING
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.sinks.base import Sink
from trainperf.trials import Trial, TrialOptions
from trainperf.trials.start import MINUTES


class TrainPerf(Measurement):
    """Measures everything that applies to the fit it is attached to.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
        dirpath: Directory under which the run directory is made, or its URL (`s3://…`); by default
            the logger's.
        log_every_n_steps: Steps between two points in the loggers; by default the trainer's.
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
        aggregate: Whether the loggers get readings over all ranks, too, while training.
        trials: Changes of your own (`trainperf.trials.Trial`) that are switched on and off in
            this fit to see what they bring, before the built-in ones; `[]` tries those alone.
            Weights, optimizer, random generators and the Trainer's counters are put back, and the
            fit goes on as if nothing had been tried; what callbacks and metrics of your own count
            is not.  A step that raises under a change ends the fit: `trainperf try` survives it.
        trial_minutes: For all of them together.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    measures = EVERYTHING

    def __init__(  # noqa: PLR0913 options that users name
        self,
        *,
        tokens: MaskFunction | None = None,
        dirpath: str | None = None,
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
        trial_minutes: float = MINUTES,
    ) -> None:
        super().__init__()
        demand_mask(tokens)
        if dirpath is not None:
            storage(dirpath)
        if log_every_n_steps is not None and log_every_n_steps < 1:
            raise ConfigError(
                f"log_every_n_steps={log_every_n_steps}: must be at least 1; leave it out to use "
                "the Trainer's"
            )
        if audit_at is not None and audit_at < 0:
            raise ConfigError(f"audit_at={audit_at}: steps count from 0; try audit_at=20")
        self.extensions = Extensions.of(meters, sinks, probes, aggregate=aggregate)
        self.trials = None if trials is None else TrialOptions.of(trials, trial_minutes)
        self.audit = AuditPlan.of(audit_at)
        self.loader_anatomy = loader_anatomy
        self.mask = tokens
        self.dirpath = dirpath
        self.log_every_n_steps = log_every_n_steps
        self.report = report
        self.lines = lines
        self.machine = machine

    def probes(self, session: Session, trainer: "pl.Trainer") -> list[Probe]:
        """What looks once, where it was asked for."""
        if not self.loader_anatomy or session.run is None:
            return []
        return [LoaderProbe(trainer.train_dataloader, session.run if session.writes else None)]

    def state_dict(self) -> dict[str, Any]:
        """Totals so far; no clock values.  Written into checkpoints."""
        return self.session.state() if self.session is not None else dict(self._restored)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Totals of the fit that a resumed one continues."""
        if isinstance(state_dict, Mapping):
            self._restored = dict(state_dict)


class AutoTrainPerf(TrainPerf):
    """The callback of `trainperf run`; where the script has a `TrainPerf` too, that one leads.

    Args:
        options: What the command was told.
    """

    defers_to_others = True

    def __init__(self, options: LaunchOptions | None = None) -> None:
        self._launch = options = options or LaunchOptions()
        super().__init__(dirpath=options.dirpath, loader_anatomy=options.loader_anatomy)
        self.audit = options.audit_plan
        if options.trials is not None:
            self.trials = TrialOptions(launch=options.trials, ends=True)

    @override
    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """The command is told of what another one of ours has chosen."""
        for own in self._attached(trainer)[:-1]:
            self._launch.joined(dirpath=own.dirpath, audit_at=own.audit.at if own.audit else None)
        super().setup(trainer, pl_module, stage)

    @property
    @override
    def state_key(self) -> str:
        """Different from that of `TrainPerf`: Lightning refuses two callbacks of one key."""
        return "trainperf run"


class StepTimeMonitor(Measurement):
    """Step time alone: steady-state median, percentiles, phases, pauses."""

    measures = frozenset({Measure.STEP_TIME})


class DataWaitMonitor(Measurement):
    """Data wait and data stall alone."""

    measures = frozenset({Measure.DATA_WAIT})


class H2DMonitor(Measurement):
    """The batch transfer alone: time, bytes, rate."""

    measures = frozenset({Measure.H2D})


class GradScalerMonitor(Measurement):
    """The GradScaler alone: overflow rate and loss scale."""

    measures = frozenset({Measure.SCALER})


class TokenThroughputMonitor(Measurement):
    """Tokens and samples per second alone.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
    """

    measures = frozenset({Measure.TOKENS})

    def __init__(self, *, tokens: MaskFunction | None = None) -> None:
        super().__init__()
        self.mask = tokens


class AllReduceTailMonitor(Measurement):
    """DDP's all-reduce tail alone."""

    measures = frozenset({Measure.TAIL})


class MemoryMonitor(Measurement):
    """Memory peaks alone."""

    measures = frozenset({Measure.MEMORY})
