"""Training under a Trainer, as trials see it: its loop is held still, its parts can be silenced."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from trainperf.core.errors import ConfigError
from trainperf.core.loop_kind import LIGHTNING
from trainperf.lightning.actions import overrides
from trainperf.lightning.held_loop import (
    HeldLoop,
    iterators_of,
    takes_iterator,
    without_checkpoints,
    without_end,
)
from trainperf.lightning.trial_loggers import ModuleLog, TrialLoggers
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.selection import ProbeSet
from trainperf.trials import TrialOptions
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.state import RESTORED
from trainperf.trials.training import Mutable, Training, outermost_layers


log = logging.getLogger("trainperf")

OnUpdate = Callable[[Callable[..., object]], Callable[[], None]]
"""Has a function called before each update; returns what ends that."""

_STEP_HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)


class FitTrials:
    """The trials of one fit, from `setup` on.

    Args:
        trainer: Whose fit it is.
        options: What is tried.
        run: The run directory of this rank.
    """

    def __init__(self, trainer: "pl.Trainer", options: TrialOptions, run: Path | None) -> None:
        self._trainer = trainer
        self._options = options
        self._loggers = TrialLoggers(trainer, run, ends=options.ends)
        self._training: LightningTraining | None = None
        if options.ends:
            _demand_own_process(trainer)
            silent = self._loggers.silent()
            if silent:
                log.warning("trainperf: nothing more is logged to %s in this run", silent)
            self._loggers.put_in()
            self._loggers.remove_own()
            without_checkpoints(trainer, setattr)

    @property
    def ends(self) -> bool:
        """Whether the process was started for them, and ends with them."""
        return self._options.ends

    def probes(
        self,
        chosen: ProbeSet,
        run: Path | None,
        guard: Guard,
        hear_updates: OnUpdate,
        resumes: Callable[[], object],
    ) -> list[Probe]:
        """The probe that takes the fit through them; none where the fit cannot be put back.

        Args:
            chosen: The other probes of the fit.
            run: Where results are written; `None` on ranks that write nothing.
            guard: Of the fit.
            hear_updates: How to be called before each update.
            resumes: Called when the Trainer's counters have been put back.
        """
        why = no_source(self._trainer)
        if why and not self.ends:
            log.warning(
                "trainperf: nothing is tried: %s, so what trials train on would be lost; use "
                "trainperf try",
                why,
            )
            return []
        if self.ends:
            without_end(self._trainer, setattr)
        training = LightningTraining(self._trainer, self._loggers, hear_updates, resumes)
        self._training = training
        return [self._options.probe(training, chosen.clock, run, guard)]

    def end(self) -> None:
        """The fit is over, perhaps in the middle of a trial: the Trainer gets its own back."""
        if self._training is not None:
            self._training.go_on()
        self._loggers.take_out()
        if self.ends:
            self._loggers.remove_own()


class LightningTraining(Training):
    """The fit of a Trainer.

    Args:
        trainer: Whose fit it is; its loaders and optimizers exist.
        loggers: What stands in for its loggers.
        hear_updates: How to be called before each update.
        resumes: Called when the Trainer's counters have been put back.
    """

    kind = LIGHTNING
    autocast_line = 'Trainer(precision="bf16-mixed")'

    def __init__(
        self,
        trainer: "pl.Trainer",
        loggers: TrialLoggers,
        hear_updates: OnUpdate,
        resumes: Callable[[], object],
    ) -> None:
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        source = None if no_source(trainer) else BatchSource(trainer.train_dataloader)
        super().__init__(
            trainer.lightning_module,
            trainer.optimizers,
            trainer.strategy.root_device,
            source,
            trainer.accumulate_grad_batches,  # 1 where the module optimizes by itself
            others=[config.scheduler for config in trainer.lr_scheduler_configs]
            + ([scaler] if scaler is not None else []),
        )
        self._trainer = trainer
        self._loggers = loggers
        self._module_log = ModuleLog(trainer.lightning_module)
        self._hear_updates = hear_updates
        self._resumes = resumes
        self._held: HeldLoop | None = None
        self._callbacks: list[pl.Callback] = list(trainer.callbacks)
        self._muted: list[pl.Callback] = []
        self._hidden: list[ProgressBar] = []
        self._precision = trainer.precision_plugin
        self._mixed: dict[torch.dtype, MixedPrecision] = {}
        self._hear_no_more: Callable[[], None] | None = None
        self.step_ended()

    # -- the loop -----------------------------------------------------------------------------

    @override
    def step_ended(self) -> None:
        """Be between the loop and its loader: each epoch has an iterator of its own."""
        self._module_log.step_ended()
        iterators = iterators_of(self._trainer)
        if self.source is not None and iterators and iterators[0] is not self.source:
            iterators[0] = self.source.over(iterators[0])

    @override
    def hold_still(self) -> None:
        super().hold_still()
        self._held = HeldLoop(self._trainer)
        if not self._held.keeps_position:
            self.restores = RESTORED
        self._callbacks = list(self._trainer.callbacks)
        self._loggers.put_in()

    @override
    def go_on(self) -> None:
        endless = self.source is not None and self.source.endless
        super().go_on()
        held, self._held = self._held, None
        if held is None:
            return
        self.set_autocast(None)
        self._loggers.take_out()
        held.let_go()
        iterators = iterators_of(self._trainer)
        if self.source is not None and endless and held.counts_batches:
            self.source.endless = (
                True  # trials have used some: the epoch has its number all the same
            )
        elif self.source is not None and iterators and iterators[0] is self.source:
            iterators[0] = self.source.release()
        held.fetch_ahead()
        self._resumes()

    @override
    def end(self) -> None:
        if self.source is not None:
            self.step_ended()
            self.source.end()
            return
        without_end(self._trainer, setattr)
        self._trainer.fit_loop.min_epochs = 0
        self._trainer.fit_loop.epoch_loop.min_steps = None
        self._trainer.should_stop = True

    # -- what can be switched -------------------------------------------------------------------

    @override
    def set_autocast(self, dtype: torch.dtype | None) -> None:
        """As `Trainer(precision=…)` does, for the whole training step."""
        if dtype is None:
            self._trainer.strategy.precision_plugin = self._precision
            return
        if dtype not in self._mixed:
            self._mixed[dtype] = MixedPrecision(
                "bf16-mixed" if dtype is torch.bfloat16 else "16-mixed", self.device.type
            )
        self._trainer.strategy.precision_plugin = self._mixed[dtype]

    @property
    @override
    def computes_in_half(self) -> bool:
        return type(self._precision) is not Precision or super().computes_in_half

    @override
    def mute_update(self, *, mute: bool) -> None:
        """As without Lightning; but in automatic optimization backward runs inside the update."""
        if not self._trainer.lightning_module.automatic_optimization:
            super().mute_update(mute=mute)
            return
        if self._hear_no_more is not None:
            self._hear_no_more()
            self._hear_no_more = None
        if mute:
            self._hear_no_more = self._hear_updates(_drop_gradients)

    @override
    def loggers(self) -> list[Mutable]:
        return self._loggers.mutable()

    @override
    def values_logged(self) -> Mutable:
        silence = self._module_log.set_interval
        return Mutable("self.log", partial(silence, 0), partial(silence, 1))

    @override
    def callbacks(self) -> list[Mutable]:
        """Those of the user's that do something in a step; progress bars are among them."""
        return [
            Mutable(
                type(callback).__name__,
                partial(self._mute, callback, mute=True),
                partial(self._mute, callback, mute=False),
            )
            for callback in self._trainer.callbacks
            if not type(callback).__module__.startswith("trainperf.") and _acts_in_steps(callback)
        ]

    @override
    def logging_interval(self) -> int | None:
        return int(self._trainer.log_every_n_steps)

    @override
    def set_logging_interval(self, steps: int) -> None:
        self._trainer.log_every_n_steps = steps

    @override
    def set_values_interval(self, steps: int) -> None:
        self._module_log.set_interval(steps)

    @property
    @override
    def data_parallel(self) -> DistributedDataParallel | None:
        model = self._trainer.model
        return model if isinstance(model, DistributedDataParallel) else None

    @override
    def parts_to_compile(self) -> list[nn.Module]:
        return outermost_layers(self.module)

    def _mute(self, callback: "pl.Callback", *, mute: bool) -> None:
        if isinstance(callback, ProgressBar):  # its thread looks for it among the callbacks
            self._hide(callback, hide=mute)
            return
        if mute:
            self._muted.append(callback)
        elif callback in self._muted:
            self._muted.remove(callback)
        self._trainer.callbacks = [c for c in self._callbacks if c not in self._muted]

    def _hide(self, bar: ProgressBar, *, hide: bool) -> None:
        """One that shows nothing, as on all ranks but the first, does not begin to."""
        if hide and getattr(bar, "is_enabled", True):
            bar.disable()
            self._hidden.append(bar)
        elif not hide and bar in self._hidden:
            self._hidden.remove(bar)
            bar.enable()


def _demand_own_process(trainer: "pl.Trainer") -> None:
    """The process that runs the script must be one that can be ended from within the fit."""
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise ConfigError(
            "trainperf try cannot end a script whose ranks are spawned or forked by the Trainer; "
            'try Trainer(strategy="ddp")'
        )


def no_source(trainer: "pl.Trainer") -> str:
    """Why the Trainer's batches cannot be taken over; empty if they can."""
    if takes_iterator(trainer):
        return "training_step takes dataloader_iter and fetches by itself"
    loaders = len(iterators_of(trainer))
    return "" if loaders == 1 else f"{loaders} loaders are combined to a batch"


def _acts_in_steps(callback: "pl.Callback") -> bool:
    return any(overrides(callback, pl.Callback, hook) for hook in _STEP_HOOKS)


def _drop_gradients(trainer: object, module: object, optimizer: torch.optim.Optimizer) -> None:
    del trainer, module
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
