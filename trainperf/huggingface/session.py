"""One training of a Hugging Face `Trainer` under measurement: its events and hooks, as a timeline.

Events alone cannot do it: all micro-batches of an update are fetched before its first event, and
there is none between forward and backward.  So the loader is wrapped, the model's forward has a
hook, and Accelerate's `backward` a bracket.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from transformers import TrainerControl, TrainerState, TrainingArguments

from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Gap, Tag
from trainperf.huggingface import moves
from trainperf.huggingface.moves import MOVES
from trainperf.huggingface.passes import Passes
from trainperf.huggingface.run_info import configuration, objects, writer_of
from trainperf.huggingface.trials import DisposableRun, HuggingFaceTraining
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.prepared_loaders import ACCELERATED, BracketedBatches, carried
from trainperf.recording.hook_cost import HookCost, HookPrice
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.sinks.loggers import CurveSink
from trainperf.recording.timeline import switch_to
from trainperf.trials.batch_source import BatchSource, TrialsOver
from trainperf.trials.training import Training


_OTHER, _COPY = MOVES["on_substep_end"].slot, MOVES[moves.COPY].phase.label

LOADER_UNSEEN = (
    "the batches do not come through this rank's loader (dispatched by rank 0, or the epoch was "
    "resumed amid): data wait is the time from the end of a step to the beginning of the next"
)
BACKWARD_UNSEEN = "backward was not called through Accelerate, so it counts as forward"


class MeasuredTraining:
    """One `Trainer.train()`.  Made in `on_train_begin`.

    Args:
        fit: That has begun.
        args: The Trainer's.
        state: The Trainer's.
        given: What the Trainer gives its callbacks: model, optimizer, scheduler, loader.
        thrown_away: Its callbacks, where the process ends with its trials.
    """

    def __init__(
        self,
        fit: Fit,
        args: TrainingArguments,
        state: TrainerState,
        given: Mapping[str, object],
        thrown_away: DisposableRun,
    ) -> None:
        self.fit = fit
        self.recorder = fit.recorder
        self._args, self._thrown_away = args, thrown_away
        self._accumulation = args.gradient_accumulation_steps
        # The Trainer alone holds its state, so that the end of one is that of the other.
        self._state: TrainerState = weakref.proxy(state)
        self._trained: HuggingFaceTraining | None = None
        self._batches: BracketedBatches | None = None
        self._untimed: dict[str, Callable[..., object]] = {}
        """What hears of events, without a clock around it."""
        self._waiting, self._unseen = False, True
        self._under: int | None = None
        """What goes on after a pause that nobody announced."""
        self._to_optimizer = switch_to(self.recorder, MOVES["on_pre_optimizer_step"].phase)
        self._to_callbacks = switch_to(self.recorder, MOVES["on_optimizer_step"].phase)
        self._objects = FitObjects(device=torch.device("cpu"))
        self._passes = Passes(fit)
        self._starts = fit.start(lambda: self._facts(given))
        if self._starts:
            fit.guard.run(Fit.hooks, lambda: self._hook(given))

    # -- the start ----------------------------------------------------------------------------

    def _facts(self, given: Mapping[str, object]) -> FitFacts:
        fit, args = self.fit, self._args
        self._objects = objects(given, args, fit.options.tokens)
        writer = None
        if fit.trials is None:
            writer = fit.guard.run(CurveSink.name, lambda: writer_of(args, self._state))
        if writer is not None:
            fit.closing.callback(writer.close)
        return FitFacts(
            objects=self._objects,
            base=args.output_dir or ".",
            kind=HUGGING_FACE,
            loader=given.get("train_dataloader"),
            config=configuration(args, self._objects),
            software={"transformers": transformers.__version__},
            writer=writer,
            log_every=max(1, int(self._state.logging_steps or 50)),
            notes=self._notes,
            training=self._training,
        )

    def _training(self, source: BatchSource | None) -> Training:
        self._trained = HuggingFaceTraining(
            self._objects, source, self._args, self._state, self._thrown_away
        )
        return self._trained

    def _hook(self, given: Mapping[str, object]) -> None:
        """Wrap the loader, hook the model and the Accelerator, until the training is over."""
        fit, loader = self.fit, given.get("train_dataloader")
        cost = HookCost(monotonic_ns, fit.guard, HookPrice(monotonic_ns, passes=False))
        self._passes = Passes(fit)
        if hasattr(loader, ACCELERATED):
            self._wrap(loader, cost)
        for undo in self._passes.attach(self._objects.module, given.get("optimizer"), cost):
            fit.undo.callback(undo)
        fit.cost, fit.on_settled = cost, self._untime

    def _wrap(self, loader: object, cost: HookCost) -> None:
        fit, inner, phases = self.fit, getattr(loader, ACCELERATED), self.fit.phases
        carry = carried(loader, fit.guard.bracket(Fit.hooks, self._copies, self._copied))
        begins, ends = cost.timed(phases.fetch_begins), cost.timed(phases.fetch_ends)
        self._batches = batches = BracketedBatches(inner, begins, ends, carry, fit.source)
        setattr(loader, ACCELERATED, batches)
        fit.undo.callback(setattr, loader, ACCELERATED, inner)
        fit.undo.callback(setattr, batches, "silent", True)

    def _untime(self) -> None:
        """Time no more: it is clear what a step costs."""
        for untime in self._passes.untimed:
            untime()
        if self._batches is not None:
            phases = self.fit.phases
            self._batches.begins, self._batches.ends = phases.fetch_begins, phases.fetch_ends
        self._step_begins = self._untimed["on_step_begin"]
        for name in self._events.keys() & self._untimed.keys():
            self._events[name] = self._untimed[name]

    # -- what the Trainer tells, by the names of its events -------------------------------------

    def listen(self, events: dict[str, Any]) -> None:
        """Put what to call at which event there; nothing where the training was not started."""
        self._events = events
        if not self._starts:
            return
        names = [name for name in MOVES if hasattr(self, name)]
        guarded: dict[str, Callable[..., object]]
        guarded = {name: self.fit.guard.hook(Fit.hooks, getattr(self, name)) for name in names}
        if self.fit.chosen.scaler is None:
            guarded["on_pre_optimizer_step"] = self._to_optimizer
        guarded["on_optimizer_step"] = self._to_callbacks
        self._untimed, cost = guarded, self.fit.cost
        for name, hears in guarded.items():
            events[name] = hears if cost is None else cost.timed(hears)
            self.fit.undo.callback(events.pop, name, None)
        self._step_begins = events["on_step_begin"]

    def on_epoch_begin(self, *_: object) -> None:
        """Nobody has asked the loader yet; it may be another one in this epoch."""
        self._unseen = True
        self._events["on_step_begin"] = self._step_begins
        if self._batches is not None:
            self._batches.in_use = False

    def on_step_begin(self, *_: object) -> None:
        """All batches of the next step are there.  Not heard once the loader was asked."""
        if self._batches is not None and self._batches.in_use:
            self._unseen = False
            self._events.pop("on_step_begin", None)
            return
        if self._trained is not None and self._trained.over:
            raise TrialsOver
        if self._waiting:
            self._waiting = False
            self.fit.phases.fetch_ends()
        elif self.recorder.awaits_batch:
            self.fit.phases.fetch_begins()
            self.fit.phases.fetch_ends()

    def on_substep_end(self, *_: object) -> None:
        """Forward and backward of a micro-batch that is not the last of its step are over."""
        self._micro_batch(complete=False)

    def on_pre_optimizer_step(self, *_: object) -> None:
        """`optimizer.step()` is about to be called, under a scaler."""
        scaler = self.fit.chosen.scaler
        if scaler is not None:
            for optimizer in self._objects.optimizers:
                scaler.attempt(optimizer)
        self._to_optimizer()

    def on_step_end(self, args: object, state: object, control: TrainerControl) -> None:
        """The step is complete; logging, evaluation and saving follow."""
        del args, state
        self._micro_batch(complete=True)
        if self._trained is not None:
            control.should_evaluate = control.should_save = False
        if control.should_log:
            return
        if control.should_evaluate or control.should_save or self._unseen:
            self._next(control)

    def on_log(self, args: object, state: object, control: TrainerControl, *_: object) -> None:
        """Metrics were logged; those of an evaluation before it is over."""
        del args, state
        if self._under is None and not self.recorder.inside_gap:
            self._next(control)

    def on_prediction_step(self, *_: object) -> None:
        """An evaluation is under way, and perhaps nobody has announced it."""
        self._paused(MOVES["on_prediction_step"].gap)

    def on_evaluate(self, args: object, state: object, control: TrainerControl) -> None:
        """An evaluation is over."""
        del args, state
        self._over(control)

    def on_predict(self, args: object, state: object, control: TrainerControl) -> None:
        """So is one that somebody has asked for in a callback."""
        del args, state
        self._over(control)

    def on_save(self, args: object, state: object, control: TrainerControl) -> None:
        """A checkpoint was written."""
        del args, state
        self._paused(Gap.CHECKPOINT)
        self._over(control)

    def on_epoch_end(self, args: object, state: object, control: TrainerControl) -> None:
        """No further batch follows in this epoch."""
        del args, state
        self._waiting = False
        self.recorder.epoch_ended()
        if self._trained is not None:
            control.should_evaluate = control.should_save = False
        if not control.should_log:
            self._next(control)

    # -- the loader ---------------------------------------------------------------------------

    def _copies(self) -> None:
        if self.recorder.awaits_batch:
            self.recorder.boundary()
        self.fit.phases[_COPY].__enter__()

    def _copied(self) -> None:
        self.fit.phases[_COPY].__exit__(None, None, None)

    # -- the step -----------------------------------------------------------------------------

    def _micro_batch(self, *, complete: bool) -> None:
        fit, passes = self.fit, self._passes
        if passes.now >= 0:
            passes.end()
        batch, loss = passes.batch, passes.loss
        passes.batch = passes.loss = None
        draft = self.recorder.draft
        if complete:
            self._to_callbacks()
            if draft is not None and draft.micro_batches + 1 < self._accumulation:
                draft.tags |= Tag.PARTIAL_GROUP  # the epoch has ended
        else:
            self.recorder.rest(_OTHER)
        begun = monotonic_ns()
        fit.micro_batch(batch, loss, complete=complete, begun=begun)
        if fit.cost is not None:
            fit.cost.without(begun)  # the monitor counts itself, and an audit is no usual cost
            if complete:
                fit.settle_cost()

    # -- pauses -------------------------------------------------------------------------------

    def _next(self, control: TrainerControl) -> None:
        """What the Trainer does now, after the step and its logging."""
        if control.should_evaluate:
            self.recorder.enter_gap(Gap.VALIDATION)
        elif control.should_save:
            self.recorder.enter_gap(Gap.CHECKPOINT)
        elif self._unseen and self.recorder.draft is not None:
            self._waiting = True
            self.fit.phases.fetch_begins()

    def _paused(self, gap: Gap) -> None:
        """A pause that may not have been announced: then it has lasted since the last event."""
        if self._under is None and not self.recorder.inside_gap:
            self._under = self.recorder.ground
            self.recorder.rest(gap, since_last=True)

    def _over(self, control: TrainerControl) -> None:
        if self._under is not None:
            self.recorder.rest(self._under)
            self._under = None
        elif self.recorder.inside_gap:
            self.recorder.leave_gap()
        self._next(control)

    def _notes(self) -> dict[str, str]:
        in_use = self._batches is not None and self._batches.in_use
        notes = {"data_wait": LOADER_UNSEEN} if self._unseen and not in_use else {}
        if self._passes.backward_unseen:
            notes["backward"] = BACKWARD_UNSEEN
        return notes
