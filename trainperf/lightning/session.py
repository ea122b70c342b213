"""One fit of a Trainer under measurement: its actions, updates and batches as those of a `Fit`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import lightning.pytorch as pl
from torch.optim import Optimizer

from trainperf.core.loop_kind import LIGHTNING
from trainperf.core.readings import (
    H2D_S,
    phase_reading,
)
from trainperf.lightning import relay as relays
from trainperf.lightning.actions import Action
from trainperf.lightning.boundaries import Boundaries, Bracket
from trainperf.lightning.run_info import (
    LoggedProbe,
    configuration,
    log_directory,
    objects,
    period,
)
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.framework_objects import is_ours, overrides
from trainperf.meters import Measure
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.recording.process_objects import nothing
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.recording.sinks.loggers import Outputs


NO_UPDATE = "no optimizer step"
BACKWARD_UNSEEN = (
    "no backward was announced, so it counts as forward: call self.manual_backward(loss) instead "
    "of loss.backward()"
)
ITERATOR_TAKES_OVER = (
    "not measurable: training_step takes dataloader_iter and moves the batch itself"
)
_TAKEN_OVER = dict.fromkeys(
    ("h2d_device_ns", "h2d_bytes", "h2d_tensors", H2D_S, phase_reading("h2d")), ITERATOR_TAKES_OVER
)


class Session:
    """Everything of one fit.  Made in `setup`, started in `on_train_start`, ended once.

    Args:
        trainer: Whose fit it is.
        fit: That begins.
        measures: What is asked for.
        mask: The user's function.
        profile: What is traced.
    """

    def __init__(
        self,
        trainer: "pl.Trainer",
        fit: Fit,
        measures: frozenset[Measure],
        mask: MaskFunction | None,
        profile: ScheduledProfile | None,
    ) -> None:
        self.fit = fit
        self.recorder = fit.recorder
        self.boundaries = Boundaries(fit)
        self._restored: Mapping[str, Any] = {}
        self._measures, self._mask, self._profile = measures, mask, profile
        self._trainer = trainer
        self._count: Callable[[], int] = int
        """Updates so far, as Lightning counts them."""
        self._step = 0
        self._before_update: Callable[[Optimizer], object] = nothing
        """Tells a training under trial."""
        if fit.tries:
            from trainperf.lightning.trials import dispose_of  # noqa: PLC0415 see `_trials`

            dispose_of(trainer, fit.closing)
        self.relay = relays.install(trainer, fit.guard.wrap(Fit.hooks, self._bracket))
        fit.undo.callback(relays.restore, trainer)
        self.boundaries.counts = False  # a tuner may train before the fit proper starts

    def start(self, module: "pl.LightningModule", restored: Mapping[str, Any]) -> bool:
        """Model, optimizers and loaders exist; whether the fit could be started.

        Args:
            module: That is trained.
            restored: The state of the fit that this one continues.
        """
        self._restored = restored
        return self.fit.start(lambda: self._facts(module), lambda: self._connect(module))

    def _connect(self, module: "pl.LightningModule") -> None:
        """Have the probes hear the loop; what it is like is known only now."""
        fit, trainer, boundaries = self.fit, self._trainer, self.boundaries
        boundaries.manual = not module.automatic_optimization
        boundaries.fetches_inside = _takes_iterator(module)
        boundaries.accumulates = boundaries.manual or fit.micro_batches > 1
        boundaries.counts = True
        fit.time(self.relay.renew)
        self._count = _updates(trainer, module)
        self._step = self._count()
        for optimizer in trainer.optimizers if boundaries.manual else ():
            for register, hears in (
                (optimizer.register_step_pre_hook, boundaries.optimizer_begins),
                (optimizer.register_step_post_hook, boundaries.optimizer_ends),
            ):
                fit.undo.callback(register(fit.guard.hook(Fit.hooks, hears)).remove)

    def on_train_batch_end(
        self, _trainer: object, _module: object, outputs: object, batch: object, _index: int
    ) -> None:
        """Our only hook in the loop, with the callback's signature.  Runs every micro-batch."""
        self.boundaries.backward_seen = False
        if batch is None or self.boundaries.exhausted:
            self.fit.pause_audit()
            return  # nothing ran: Lightning has skipped it, or there was none
        step = self._count() + self.boundaries.updates
        # In manual optimization nothing may ever tell us of an update.
        complete = step != self._step or (
            self.boundaries.manual and self.fit.batch_is_step(NO_UPDATE)
        )
        self._step = step
        accumulation = self._trainer.accumulate_grad_batches
        if accumulation != self.fit.micro_batches:
            self._rescale(accumulation)
        # Our own bracket was the last to switch: what Lightning took to call us is ours, too.
        self.fit.micro_batch(batch, outputs, complete=complete, begun=self.recorder.switched_ns)

    def on_before_optimizer_step(
        self, _trainer: object, _module: object, optimizer: Optimizer
    ) -> None:
        """An attempt, with the callback's signature.  Runs every step under a scaler or trials."""
        # In automatic optimization a `training_step` that returned None ends here too.
        if self.boundaries.manual or self.boundaries.backward_seen:
            self.fit.attempt(optimizer)
        self._before_update(optimizer)

    def state(self) -> dict[str, object]:
        """Totals of this fit and of those it continued; no clock values."""
        done, before = self.fit.monitor.settled_progress(), self._restored.get("totals", {})
        summed = {key: before.get(key, 0) + done.get(key, 0) for key in {*before, *done}}
        return {"totals": summed, "run": self.fit.address}

    # -- inside -------------------------------------------------------------------------------

    def _facts(self, module: "pl.LightningModule") -> FitFacts:
        trainer = self._trainer
        return FitFacts(
            objects=objects(trainer, self._mask),
            # Lightning writes nothing in a fast run, nor do we.
            base=None if trainer.fast_dev_run else log_directory(trainer),
            root=module,
            kind=LIGHTNING,
            loader=trainer.train_dataloader,
            config=configuration(trainer, module),
            rank=trainer.global_rank,
            outputs=Outputs(loggers=trainer.loggers, step=lambda: trainer.global_step),
            log_every=trainer.log_every_n_steps or 50,
            measures=self._measures,
            profile=self._profile,
            probes=(LoggedProbe(trainer),),
            notes=self._notes,
            reasons=_TAKEN_OVER if _takes_iterator(module) else {},
            actions_ns=self.boundaries.hooks_ns,
            trials=self._trials,
            earlier=self._restored,
            steps_before=trainer.global_step,
            micro_batches=trainer.accumulate_grad_batches,
            period=period(trainer),
        )

    def _trials(self, fit: Fit, facts: FitFacts) -> Probe:
        from trainperf.lightning.trials import LightningTraining  # noqa: PLC0415 it loads every change there is

        training = LightningTraining(fit, facts, self._trainer)
        self._before_update = training.before_update
        return training.probe()

    def _rescale(self, accumulation: int) -> None:
        """A scheduler has changed what Lightning divides the loss by, before the open step."""
        self.fit.micro_batches = accumulation
        self.boundaries.accumulates = True
        self.relay.renew()
        if self.fit.chosen.loss is not None:
            self.fit.chosen.loss.rescale(float(accumulation), since=self.recorder.index)

    def _notes(self) -> dict[str, str]:
        if self.boundaries.manual and self.fit.monitor.progress and not self.boundaries.backwards:
            return {"backward": BACKWARD_UNSEEN}
        return {}

    def _bracket(self, name: str) -> Bracket | None:
        trainer, action = self._trainer, Action.parse(name)
        callbacks = [each for each in trainer.callbacks if each.state_key == action.owner]
        objects_of: dict[str, tuple[Sequence[object], type]] = {
            "Callback": (callbacks, pl.Callback),
            "LightningModule": ([trainer.lightning_module], pl.LightningModule),
            "LightningDataModule": ([trainer.datamodule], pl.LightningDataModule),
        }
        owners, base = objects_of.get(action.kind, ((), object))
        overridden = any(overrides(owner, base, action.hook) for owner in owners)  # or Lightning's
        ours = any(map(is_ours, callbacks))
        bracket = self.boundaries.bracket(name, overridden=overridden, ours=ours)
        cost = self.fit.cost
        return bracket if bracket is None or cost is None else cost.bracket(bracket)


def _takes_iterator(module: "pl.LightningModule") -> bool:
    return "dataloader_iter" in inspect.signature(module.training_step).parameters


def _updates(trainer: "pl.Trainer", module: "pl.LightningModule") -> Callable[[], int]:
    """The counter that `trainer.global_step` reads six levels down, once the loops exist."""
    loop = trainer.fit_loop.epoch_loop
    try:
        counter = (
            loop.automatic_optimization.optim_progress.optimizer.step.total
            if module.automatic_optimization
            else loop.manual_optimization.optim_step_progress.total
        )
        exact = counter.completed == trainer.global_step
    except AttributeError:  # another version of Lightning
        exact = False
    return partial(getattr, counter, "completed") if exact else lambda: trainer.global_step
