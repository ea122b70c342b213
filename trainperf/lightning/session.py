"""One fit under measurement: the relay, the monitor, where the numbers go, and the step's audit."""

import inspect
import logging
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch.optim import Optimizer

from trainperf.core import spool
from trainperf.core.interleaving import directory
from trainperf.core.launch_environment import AuditPlan
from trainperf.core.machine.clocks import monotonic_ns, wall_clock_anchor
from trainperf.core.phases import Tag
from trainperf.core.places import AnyPath, RemotePath, path_of
from trainperf.core.readings import H2D_S, PHASE_H2D_S
from trainperf.lightning import relay as relays
from trainperf.lightning.actions import Action, overrides
from trainperf.lightning.boundaries import Boundaries, Bracket
from trainperf.lightning.optimizer_updates import Updates
from trainperf.lightning.run_info import (
    LoggedProbe,
    configuration,
    log_directory,
    objects,
    period,
)
from trainperf.lightning.trials import FitTrials, OnUpdate
from trainperf.meters import Measure
from trainperf.meters.fold import Reading
from trainperf.recording.bracket_cost import BracketCost, TimedBracket
from trainperf.recording.extensions import Extensions
from trainperf.recording.fit import PATIENCE, FitPlan, start_fit
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.ddp import TailProbe
from trainperf.recording.probes.device_marks import MarksProbe
from trainperf.recording.probes.selection import ProbeSet
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.recording.profiling.options import CaptureRank
from trainperf.recording.recorder import Draft
from trainperf.recording.shared_run import shared_run_directory, written
from trainperf.recording.sinks.base import Outputs
from trainperf.recording.upload import Upload


log = logging.getLogger("trainperf")

BATCH_IS_STEP = f"no optimizer step in {PATIENCE} batches, so every batch counts as a step"
BACKWARD_UNSEEN = (
    "no backward was announced, so it counts as forward: call self.manual_backward(loss) instead "
    "of loss.backward()"
)
ITERATOR_TAKES_OVER = (
    "not measurable: training_step takes dataloader_iter and moves the batch itself"
)


class Session:
    """Everything of one fit.  Made in `setup`, started in `on_train_start`, ended once."""

    part = "start of the fit"

    def __init__(
        self,
        trainer: "pl.Trainer",
        measures: frozenset[Measure],
        log_every: int | None = None,
        extensions: Extensions | None = None,
        *,
        lines: bool = False,
        machine: bool = False,
    ) -> None:
        self.monitor = Monitor()
        self.recorder = self.monitor.recorder
        self.started_at = wall_clock_anchor()
        self.boundaries = Boundaries(self.recorder, self.monitor.guard)
        self.run: Path | None = None
        """The run directory; of one behind a URL, its spool."""
        self.upload: Upload | None = None
        """Of a run behind a URL."""
        self.continues = ""
        self.totals: dict[str, int] = {}
        self._measures = measures
        self._trainer = trainer
        self._log_every = log_every
        self._extensions = extensions or Extensions()
        self._lines, self._machine = lines, machine
        self._updates = Updates(trainer)
        self.trials: FitTrials | None = None
        self.hear_updates: OnUpdate = lambda _: lambda: None
        """How to be called before each update."""
        self._step = 0
        self._batch_is_step = False
        self.chosen = ProbeSet()
        """The probes of the fit, once it has started."""
        self.audit: AuditProbe | None = None
        self._accumulation = 1
        self._manual = False
        self._timed: BracketCost | None = None
        guard = self.monitor.guard
        self.relay = relays.install(trainer, guard.wrap(Boundaries.part, self._bracket))
        guard.when_faulty(Boundaries.part, self._stop_listening)
        guard.when_faulty(Monitor.part, self._stop_listening)
        self.boundaries.counts = False  # a tuner may train before the fit proper starts

    def start(
        self,
        module: "pl.LightningModule",
        mask: MaskFunction | None,
        extra: list[Probe],
        first_answer: Callable[[dict[str, Reading]], None] | None,
        audit: AuditPlan | None = None,
    ) -> None:
        """Model, optimizers and loaders exist: attach probes, open sinks."""
        trainer = self._trainer
        watched = objects(trainer, mask)
        watched.run = self.run if self.writes else None
        if audit is not None and self.run is not None:
            place = CaptureRank.of(watched, self.run, trainer.global_rank)
            self.audit = AuditProbe(module, audit, place, self.monitor.guard)
        self._accumulation = trainer.accumulate_grad_batches
        thrown_away = self.trials is not None and self.trials.ends
        loggers = trainer.loggers if trainer.is_global_zero and not thrown_away else ()
        self.chosen = start_fit(
            self.monitor,
            FitPlan(
                objects=watched,
                outputs=Outputs(
                    run=self.run,
                    rank=trainer.global_rank,
                    loggers=loggers,
                    step=lambda: trainer.global_step,
                ),
                started_at=self.started_at,
                config=configuration(trainer, module),
                software={"lightning": str(pl.__version__)},
                log_every=self._log_every or trainer.log_every_n_steps or 50,
                notes=self._notes,
                actions_ns=self.boundaries.hooks_ns,
                measures=self._measures,
                lines=self._lines,
                machine=self._machine,
                probes=lambda chosen: [LoggedProbe(trainer), *extra, *self._audits(chosen)],
                trials=self._trials,
                reasons=lambda _: _iterator_reasons(module),
                extensions=self._extensions,
                totals=self.totals,
                continues=self.continues,
                micro_batches=self._accumulation,
                period=period(trainer),
                first_answer=first_answer,
            ),
        )
        if self.upload is not None:
            self.monitor.guard.run(Upload.part, self.upload.start)
        self._connect(self.chosen.marks, self.chosen.tail)
        self._manual = self.boundaries.manual = not module.automatic_optimization
        self.boundaries.fetches_inside = _takes_iterator(module)
        self.boundaries.accumulates = self._manual or self._accumulation > 1
        self.boundaries.counts = True
        self._timed = BracketCost(monotonic_ns)
        self.relay.renew()  # marks and the loop's kind are known only now
        self._updates.start(trainer, module)
        self._step = self._updates.counter.completed
        if self._manual:
            self._updates.hear(trainer.optimizers, self.boundaries, self.monitor.guard)

    def on_train_batch_end(
        self, trainer: object, module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Our only hook in the loop, with the callback's signature.  Runs every micro-batch."""
        del trainer, module, batch_idx
        if batch is None or self.boundaries.exhausted:
            return  # nothing ran: Lightning has skipped it, or there was none
        step = self._updates.counter.completed + self._updates.hooked
        complete = step != self._step or self._batch_is_step
        self._step = step
        if not complete:
            self._assume_batch_is_step()
            complete = self._batch_is_step
        # Our own bracket was the last to switch: what Lightning took to call us is ours, too.
        begun = self.recorder.switched_ns
        self.monitor.micro_batch(batch, outputs, complete=complete, begun=begun)
        draft = self.recorder.draft
        if not complete or draft is None:
            return
        if self._timed is not None:
            self._settle_brackets(self._timed, draft)
        accumulation = self._trainer.accumulate_grad_batches
        if draft.micro_batches < accumulation:
            draft.tags |= Tag.PARTIAL_GROUP  # the epoch has ended
        if accumulation != self._accumulation:
            self._rescale(accumulation)

    def on_before_optimizer_step(
        self, trainer: object, module: object, optimizer: Optimizer
    ) -> None:
        """An attempt, with the callback's signature.  Runs every step under a GradScaler."""
        del trainer, module
        # In automatic optimization a `training_step` that returned None ends here too.
        scaler = self.chosen.scaler
        if scaler is not None and (self._manual or self.boundaries.backward_seen):
            scaler.attempt(optimizer)

    @property
    def writes(self) -> bool:
        """Whether this rank writes what is written once for all ranks."""
        return self.run is not None and self._trainer.is_global_zero

    def finish(self, reason: str) -> None:
        """Close files, restore the profiler.  Safe to call twice."""
        if self.audit is not None:  # the fit may be over in the middle of it
            self.audit.pause()
        self.monitor.finish(reason)
        relays.restore(self._trainer)
        self._updates.detach()
        if self.run is not None and self.writes and spool.discard_empty(self.run):
            self.run = None

    def state(self) -> dict[str, object]:
        """Totals of this fit and of those it continued; no clock values."""
        done = self.monitor.settled_progress()
        summed = {key: self.totals.get(key, 0) + done.get(key, 0) for key in {*self.totals, *done}}
        return {"totals": summed, "run": self.address}

    def open_run(self, dirpath: str | None) -> None:
        """Choose the run directory, on rank 0 for all.

        Without a collective: the callback may be attached on some ranks only.
        """
        trainer = self._trainer
        if trainer.fast_dev_run:  # Lightning writes nothing then, nor do we
            return
        base = path_of(directory() or dirpath or log_directory(trainer))
        if trainer.world_size > 1 and not (dist.is_available() and dist.is_initialized()):
            # Ranks that torch knows nothing of, e.g. a TPU's: only the strategy reaches them.
            chosen = trainer.strategy.broadcast(
                written(base, spool.choose) if trainer.is_global_zero else None
            )
        else:
            chosen = shared_run_directory(base, trainer.global_rank, trainer.world_size)
        self.run = None if chosen is None else self._written_to(chosen)

    @property
    def address(self) -> str:
        """Where people find the run; empty without one."""
        return str(self.upload.url if self.upload is not None else self.run or "")

    # -- inside -------------------------------------------------------------------------------

    def _written_to(self, address: AnyPath) -> Path | None:
        try:
            run = spool.local(address)
        except OSError as error:
            log.warning("trainperf: no spool can be written (%s): nothing is recorded", error)
            return None
        if isinstance(address, RemotePath):
            self.upload = Upload(run, address, self._trainer.global_rank)
        return run

    def _audits(self, chosen: ProbeSet) -> list[Probe]:
        if self.audit is None:
            return []
        self.audit.ledger = chosen.ledger
        return [self.audit]

    def _trials(self, chosen: ProbeSet) -> list[Probe]:
        if self.trials is None:
            return []

        def resumes() -> None:
            self._step = self._updates.counter.completed + self._updates.hooked

        run = self.run if self.writes else None
        return self.trials.probes(chosen, run, self.monitor.guard, self.hear_updates, resumes)

    def _stop_listening(self) -> None:
        """After a fault of ours no step is measured any more: a part of one would be no step."""
        self._timed = None
        self.relay.silence()
        self.recorder.abandon()

    def _connect(self, marks: MarksProbe | None, tail: TailProbe | None) -> None:
        """Let probes hear the loop, each under a guard of its own."""
        guard, boundaries = self.monitor.guard, self.boundaries
        if marks is not None:
            boundaries.mark = guard.wrap(marks.name, marks.mark)
        if tail is not None:
            boundaries.after_backward = tail.ending(guard)

    def _rescale(self, accumulation: int) -> None:
        """A scheduler has changed what Lightning divides the loss by, before the open step."""
        self._accumulation = accumulation
        self.boundaries.accumulates = True
        self.relay.renew()
        if self.chosen.loss is not None:
            self.chosen.loss.rescale(float(accumulation), since=self.recorder.index)

    def _notes(self) -> dict[str, str]:
        notes = {"step": BATCH_IS_STEP} if self._batch_is_step else {}
        if self._manual and self.monitor.progress and not self.boundaries.backwards:
            notes["backward"] = BACKWARD_UNSEEN
        return notes

    def _assume_batch_is_step(self) -> None:
        """In manual optimization nothing may ever tell us of an update."""
        draft = self.recorder.draft
        stuck = draft is not None and draft.index == 0 and draft.micro_batches + 1 >= PATIENCE
        if stuck and not self._trainer.lightning_module.automatic_optimization:
            self._batch_is_step = True
            rank_zero_info("trainperf: %s", BATCH_IS_STEP)

    def _settle_brackets(self, timed: BracketCost, draft: Draft) -> None:
        """Time brackets no more once it is clear what they cost."""
        switch_ns = timed.step_ended(draft)
        if switch_ns is not None:
            self.monitor.switch_ns, self._timed = switch_ns, None
            self.relay.renew()

    def _bracket(self, name: str) -> Bracket | None:
        action = Action.parse(name)
        owners = [each for each in self._trainer.callbacks if each.state_key == action.owner]
        bracket = self.boundaries.bracket(
            name, overridden=self._overridden(action, owners), ours=any(map(_is_ours, owners))
        )
        timed = self._timed
        return bracket if bracket is None or timed is None else TimedBracket(timed, bracket)

    def _overridden(self, action: Action, owners: "list[pl.Callback]") -> bool:
        """Whether a hook, of a callback one of its *owners*, is more than Lightning's no-op."""
        trainer = self._trainer
        if action.kind == "Callback":
            return any(overrides(owner, pl.Callback, action.hook) for owner in owners)
        if action.kind == "LightningModule":
            return overrides(trainer.lightning_module, pl.LightningModule, action.hook)
        if action.kind == "LightningDataModule":
            return overrides(trainer.datamodule, pl.LightningDataModule, action.hook)
        return False


def _takes_iterator(module: "pl.LightningModule") -> bool:
    return "dataloader_iter" in inspect.signature(module.training_step).parameters


def _iterator_reasons(module: "pl.LightningModule") -> dict[str, str]:
    if not _takes_iterator(module):
        return {}
    facts = ("h2d_device_ns", "h2d_bytes", "h2d_tensors")
    return dict.fromkeys((*facts, H2D_S, PHASE_H2D_S), ITERATOR_TAKES_OVER)


def _is_ours(callback: "pl.Callback") -> bool:
    """Whether a callback is, or inherits from, one of trainperf's."""
    return any(base.__module__.startswith("trainperf.") for base in type(callback).__mro__)
