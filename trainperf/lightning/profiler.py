"""Scheduled traces of a fit: attach it like any other measurement."""

import lightning.pytorch as pl
from lightning.pytorch.profilers import PyTorchProfiler

from trainperf.core.errors import ConfigError
from trainperf.lightning.measurement import Measurement
from trainperf.lightning.relay import users_profiler
from trainperf.meters import Measure
from trainperf.recording.profiling.options import ScheduledProfile


class ScheduledProfiler(ScheduledProfile, Measurement):
    """Traces some training steps with `torch.profiler`; the options are `ScheduledProfile`'s.

    Attached with other measurements it shares their run; alone it also measures step times.

    Raises:
        ConfigError: A value is refused, now or at the start of the fit; the message says which
            and what to do instead.
    """

    measures = frozenset({Measure.STEP_TIME})

    def __post_init__(self) -> None:
        super().__post_init__()
        Measurement.__init__(self)

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """Refuse what cannot work before anything is measured."""
        theirs = users_profiler(trainer)
        if stage == "fit" and isinstance(theirs, PyTorchProfiler):
            raise ConfigError(
                f"Trainer(profiler={type(theirs).__name__}) and ScheduledProfiler: torch has "
                "room for one profiler; take out the trainer's, ScheduledProfiler writes the "
                "same traces"
            )
        several = sum(isinstance(c, ScheduledProfiler) for c in trainer.callbacks) > 1
        if stage == "fit" and several:
            raise ConfigError(
                "two ScheduledProfilers on one trainer: torch has room for one profiler; attach "
                "one, with repeat=2 for two cycles"
            )
        if stage == "fit" and min(self.ranks) >= trainer.world_size:
            raise ConfigError(self.beyond(trainer.world_size))
        super().setup(trainer, pl_module, stage)
