"""Objects, settings and logged metrics of a fit, read from the Trainer.

Besides what every loop has (`trainperf.recording.run_settings`) a Trainer tells at its start:
`scheduler_interval` and `scheduler_frequency`, `gradient_clip_val` and
`gradient_clip_algorithm`, `val_check_interval`, `check_val_every_n_epoch` and
`limit_val_batches`, and the class names of `callbacks` and `loggers`.

Logged metrics are read from Lightning's store of logged results, which is not a public interface:
if it goes away, nothing is said of them.
"""

import math
from typing import ClassVar

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from trainperf.core.steps.records import Scalar
from trainperf.recording import run_identity, run_settings
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.probes.tokens import MaskFunction


def objects(trainer: "pl.Trainer", mask: MaskFunction | None) -> FitObjects:
    """What probes look at."""
    return FitObjects(
        device=trainer.strategy.root_device,
        module=trainer.model,
        optimizers=trainer.optimizers,
        schedulers=[config.scheduler for config in trainer.lr_scheduler_configs],
        scaler=getattr(trainer.precision_plugin, "scaler", None),
        world_size=trainer.world_size,
        local_world_size=trainer.num_devices,
        precision=f"precision {trainer.precision}",
        strategy=type(trainer.strategy).__name__,
        # Lightning hands callbacks the loss already divided by the accumulation.
        loss_scale=float(trainer.accumulate_grad_batches),
        mask=mask,
    )


def log_directory(trainer: "pl.Trainer") -> str:
    """Where this rank's loggers write, as `Trainer.log_dir`, which is a collective."""
    logger = next(iter(trainer.loggers), None)
    if isinstance(logger, TensorBoardLogger | CSVLogger):
        return str(logger.log_dir)
    return str((logger and logger.save_dir) or trainer.default_root_dir)


def configuration(trainer: "pl.Trainer", module: "pl.LightningModule") -> dict[str, Scalar]:
    """What comparisons of runs will need to know."""
    configured = trainer.lr_scheduler_configs
    return {
        **run_identity.model(module),
        "precision": str(trainer.precision),
        "strategy": type(trainer.strategy).__name__,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "automatic_optimization": module.automatic_optimization,
        "max_steps": trainer.max_steps,
        "max_epochs": trainer.max_epochs,
        "log_every_n_steps": trainer.log_every_n_steps,
        "gradient_clip_val": trainer.gradient_clip_val,
        "gradient_clip_algorithm": trainer.gradient_clip_algorithm,
        "val_check_interval": trainer.val_check_interval,
        "check_val_every_n_epoch": trainer.check_val_every_n_epoch,
        "limit_val_batches": trainer.limit_val_batches,
        "callbacks": run_settings.names(trainer.callbacks),
        "loggers": run_settings.names(trainer.loggers),
        "schedulers": run_settings.names(config.scheduler for config in configured),
        "scheduler_interval": run_settings.together(config.interval for config in configured),
        "scheduler_frequency": run_settings.together(config.frequency for config in configured),
    }


def period(trainer: "pl.Trainer") -> int:
    """Batches after which validation, or an epoch of several, comes back; 0 if it is not known."""
    epoch = trainer.num_training_batches
    epochs = trainer.check_val_every_n_epoch
    lengths: list[int | float] = [0, 0 if trainer.max_epochs == 1 else epoch]
    if trainer.enable_validation and trainer.val_check_batch is not None:
        lengths += [trainer.val_check_batch, 0 if epochs is None else epochs * epoch]
    return int(max(length for length in lengths if math.isfinite(length)))


class LoggedProbe(Probe):
    """Names of the metrics that `self.log` shows or reduces in every batch.

    Under `prog_bar_metrics` and `sync_dist_metrics` in the run's configuration, empty where there
    are none; beside them what is validated with.
    """

    name = "logged metrics"
    facts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, trainer: "pl.Trainer") -> None:
        self._trainer = trainer

    def config(self) -> dict[str, Scalar]:
        """What has been logged in training so far, and what is validated with."""
        validated = validation(self._trainer)
        results = getattr(self._trainer.fit_loop.epoch_loop, "_results", None)
        if not isinstance(results, dict):
            return validated
        each = [result.meta for result in results.values() if result.meta.on_step]
        shown = dict.fromkeys(meta.name for meta in each if meta.prog_bar)
        reduced = dict.fromkeys(meta.name for meta in each if meta.sync.should)
        names = {"prog_bar_metrics": ", ".join(shown), "sync_dist_metrics": ", ".join(reduced)}
        return {**names, **validated}


def validation(trainer: "pl.Trainer") -> dict[str, Scalar]:
    """Batches of a validation, and their size: a module's own step is no call that is heard."""
    theirs = run_identity.loader(trainer.val_dataloaders)
    size = theirs.get("batch_size")
    batches = sum(trainer.num_val_batches)
    if not size or not 0 < batches < math.inf:
        return {}
    return {
        "validation_batches": int(batches),
        "validation_batch_size": size,
        "validation_workers": theirs.get("num_workers"),
        "validation_persistent": theirs.get("persistent_workers"),
    }
