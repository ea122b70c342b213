"""Options of a fit, the same in every door: each is declared, explained and checked here."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.paths import path_of
from trainperf.meters import Meter
from trainperf.recording.extensions import checked
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.recording.sinks.base import Sink


log = logging.getLogger("trainperf")

NOTHING_TRIED = (
    "nothing is tried in a training that goes on: weights and batches of the trials would be its "
    "own; use trainperf try"
)


# Not frozen: the callbacks and the monitor have these options, and a life of their own.
@dataclass(kw_only=True, eq=False, repr=False)
class FitOptions:
    """What is measured of a fit, and where it goes.

    Under `trainperf run`, `try` and `prove` what the command was told is added.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    tokens: MaskFunction | None = None
    """From a batch to a mask of shape (batch, tokens), where neither `attention_mask` nor `labels`
    tells which tokens count; of a Hugging Face Trainer from the model's keyword arguments."""
    dirpath: str | Path | None = None
    """Directory under which the run directory is made, or its URL (`s3://…`); by default the
    logger's under Lightning, and `output_dir` under a Hugging Face Trainer; in workers of Ray Train
    the run's folder on its `storage_path`."""
    log_every_n_steps: int | None = None
    """Steps between two points in TensorBoard and other loggers; by default the framework's."""
    report: bool = True
    """Whether to print the report when the fit ends."""
    lines: bool = True
    """Whether to sample the lines that the training thread is in, for 0.1 % of the time."""
    hang_after_s: float | None = 60.0
    """Seconds without the end of a step after which each rank writes what it is at, once a minute,
    for `trainperf report` and `watch`: where that is longer, after twenty of the slowest usual
    steps.  `None` watches for nothing."""
    machine: bool = True
    """Whether to sample the machine, once a second, in a process of its own."""
    audit_at: int | None = None
    """Number of a step, from 0, of which every operator is written to `audit.json`: it takes
    longer, and no statistic counts it."""
    profile: ScheduledProfile | None = None
    """Which steps are traced with `torch.profiler`."""
    meters: Sequence[Meter] = ()
    """Your own (`trainperf.meters.Meter`), in addition to the built-in ones."""
    probes: Sequence[Probe] = ()
    """Your own (`trainperf.recording.probes.base.Probe`): facts of a step that your meters need."""
    sinks: Sequence[Sink] = ()
    """Your own (`trainperf.recording.sinks.base.Sink`): they get every step and reading."""
    trials: Sequence[object] = ()
    """Changes of your own (`trainperf.trials.Trial`) that `trainperf try` switches on and off
    before the built-in ones.  In a training that goes on nothing is tried."""

    def __post_init__(self) -> None:
        demand_mask(self.tokens)
        if self.dirpath is not None:
            path_of(self.dirpath)
        every, audit_at, hang_s = self.log_every_n_steps, self.audit_at, self.hang_after_s
        refused = {
            f"log_every_n_steps={every}: must be at least 1; leave it out for the usual number": (
                every is not None and every < 1
            ),
            f"audit_at={audit_at}: steps count from 0; try audit_at=20": (
                audit_at is not None and audit_at < 0
            ),
            f"hang_after_s={hang_s}: must be above 0; None watches for nothing": (
                hang_s is not None and hang_s <= 0
            ),
        }
        for why, holds in refused.items():
            if holds:
                raise ConfigError(why)
        self.meters, self.sinks, self.probes = checked(self.meters, self.sinks, self.probes)
        if self.trials:
            from trainperf.trials import demand_trials  # noqa: PLC0415 it loads every change there is

            demand_trials(self.trials)
        if self.trials and LaunchOptions.of_this_process().trials is None:
            log.warning("trainperf: %s", NOTHING_TRIED)

    def launched(self) -> LaunchOptions:
        """With what the command was told that has launched this process, if one has."""
        usual = self.dirpath is None or str(self.dirpath) == str(type(self).dirpath)
        return LaunchOptions.of_this_process().joined(
            dirpath=None if usual else str(self.dirpath),
            audit_at=self.audit_at,
        )
