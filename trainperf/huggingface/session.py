"""One training of a Hugging Face `Trainer` under measurement: its events and hooks, as a timeline.

Events alone cannot do it: all micro-batches of an update are fetched before its first event, and
there is none between forward and backward.  So the loader is wrapped, the model's forward has a
hook, and Accelerate's `backward` a bracket.
"""

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerControl, TrainerState, TrainingArguments

from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Gap, Phase
from trainperf.core.places import path_of
from trainperf.core.steps.records import FINISHED, NOT_CLOSED
from trainperf.huggingface.options import CallbackOptions, EarlyStart
from trainperf.huggingface.passes import Passes
from trainperf.huggingface.run_info import (
    ClosingWriter,
    described,
    objects,
    raised_inside,
    writer_of,
)
from trainperf.huggingface.trials import HuggingFaceTraining
from trainperf.loop.finish import finish_rank
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.loop.prepared_loaders import ACCELERATED, BracketedBatches, carried
from trainperf.loop.start import LoopOptions, StartedFit, start
from trainperf.recording.hook_cost import HookCost, HookPrice
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.probes.selection import FitObjects, ProbeSet
from trainperf.recording.sinks.tensorboard import TensorBoardSink
from trainperf.recording.timeline import switch_to
from trainperf.recording.upload import Upload
from trainperf.trials.batch_source import BatchSource, TrialsOver
from trainperf.trials.training import Training


log = logging.getLogger("trainperf")

_OTHER = int(Phase.OTHER)

LOADER_UNSEEN = (
    "the batches do not come through this rank's loader (dispatched by rank 0, or the epoch was "
    "resumed amid): data wait is the time from the end of a step to the beginning of the next"
)
BACKWARD_UNSEEN = "backward was not called through Accelerate, so it counts as forward"


class MeasuredTraining:
    """One `Trainer.train()`.  Made in `on_train_begin`, ended once.

    Args:
        options: The callback's.
        args: The Trainer's.
        state: The Trainer's.
        given: What the Trainer gives its callbacks: model, optimizer, scheduler, loader.
        begun: When the fit began, if it did before.
    """

    part = "start of the fit"
    hooks = "Trainer events"

    def __init__(
        self,
        options: CallbackOptions,
        args: TrainingArguments,
        state: TrainerState,
        given: Mapping[str, object],
        begun: "EarlyStart | None" = None,
    ) -> None:
        begun = begun or EarlyStart()
        self.monitor = begun.monitor
        self.recorder = self.monitor.recorder
        self.run: Path | None = None
        self._options = options
        self._started_at = begun.at
        self._rank = 0
        self._ranks = int(args.world_size)
        self._objects = FitObjects(device=torch.device("cpu"))
        self._writer: ClosingWriter | None = None
        guard = self.monitor.guard
        if options.trials is None:
            self._writer = guard.run(TensorBoardSink.name, lambda: writer_of(args, state))
        self._brackets = PhaseContexts(self.recorder, guard, ProbeSet())
        self._passes = Passes(self.recorder, self._brackets, None)
        self._batches: BracketedBatches | None = None
        self._scaler: ScalerProbe | None = None
        self._audit: AuditProbe | None = None
        self._trained: HuggingFaceTraining | None = None
        self._undo = ExitStack()
        self._cost: HookCost | None = None
        """Times what runs every step, until it is clear what that costs."""
        self._untimed: dict[str, Callable[..., object]] = {}
        """What hears of events, without a clock around it."""
        self._pid = os.getpid()
        self._waiting, self._unseen = False, True
        self._under: int | None = None
        """What goes on after a pause that nobody announced."""
        self._to_optimizer = switch_to(self.recorder, Phase.OPTIMIZER)
        self._to_callbacks = switch_to(self.recorder, Phase.CALLBACKS)
        guard.when_faulty(self.hooks, self._give_up)
        self._fit = guard.run(self.part, lambda: self._start(args, state, given))
        if self._fit is not None:
            guard.run(self.hooks, lambda: self._listen(given))
        atexit.register(self._at_exit)

    # -- what the Trainer tells, by the names of its events -------------------------------------

    def heard(self, events: dict[str, Any]) -> None:
        """Put what to call at which event there; nothing where the training was not started."""
        self._events = events
        if self._fit is None:
            return
        self._names = [name for name in vars(type(self)) if name.startswith("on_")]
        events |= {name: self._guarded(getattr(self, name)) for name in self._names}
        if self._scaler is None:
            events["on_pre_optimizer_step"] = self._to_optimizer
        events["on_optimizer_step"] = self._to_callbacks
        if self._cost is not None:
            self._untimed = {name: events[name] for name in self._names}
            events |= {name: self._cost.timed(each) for name, each in self._untimed.items()}
        self._step_begins = events["on_step_begin"]
        self._undo.callback(self._deaf)

    def _deaf(self) -> None:
        for name in self._names:
            self._events.pop(name, None)

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
            self._brackets.fetch_ends()
        elif self.recorder.awaits_batch:
            self._brackets.fetch_begins()
            self._brackets.fetch_ends()

    def on_substep_end(self, *_: object) -> None:
        """Forward and backward of a micro-batch that is not the last of its step are over."""
        self._micro_batch(complete=False)

    def on_pre_optimizer_step(self, *_: object) -> None:
        """`optimizer.step()` is about to be called, under a scaler."""
        if self._scaler is not None:
            for optimizer in self._objects.optimizers:
                self._scaler.attempt(optimizer)
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
        self._paused(Gap.VALIDATION)

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

    # -- the end ------------------------------------------------------------------------------

    def finish(self, reason: str = FINISHED) -> None:
        """Close the files, write the summary, print the report on rank 0.  Safe to call twice."""
        atexit.unregister(self._at_exit)
        if self.monitor.finished:
            return
        guard = self.monitor.guard
        guard.last(self.hooks, self._undo.close)
        self.monitor.finish(reason)
        finish_rank(
            guard,
            self.run if self._rank == 0 else None,
            ranks=self._ranks,
            reason=reason,
            aloud=self._options.report,
            writer=self._writer,
        )
        if self._writer is not None:
            guard.last(TensorBoardSink.name, self._writer.close)
        if self._fit is not None and self._fit.upload is not None:
            guard.run(Upload.part, self._fit.upload.end)

    def let_go(self) -> None:
        """Take all hooks away, for nobody trains any more.  Safe to call at any time."""
        self.monitor.guard.last(self.hooks, self._undo.close)

    # -- the start ----------------------------------------------------------------------------

    def _start(
        self, args: TrainingArguments, state: TrainerState, given: Mapping[str, object]
    ) -> StartedFit:
        own = self._options
        self._objects = objects(given, args, own.tokens)
        options = LoopOptions(
            base=own.dirpath or path_of(args.output_dir or "."),
            writer=self._writer,
            log_every=own.log_every or max(1, int(state.logging_steps or 50)),
            aloud=own.report,
            lines=own.lines,
            machine=own.machine,
            started_at=self._started_at,
            extensions=own.extensions,
            audit=own.audit,
            loader_anatomy=own.loader_anatomy,
            trials=own.trials,
        )
        loader = given.get("train_dataloader")
        # The Trainer alone holds its state, so that the end of one is that of the other.
        state = weakref.proxy(state)

        def training(watched: FitObjects, source: BatchSource | None) -> Training:
            self._trained = HuggingFaceTraining(watched, source, args, state, own.thrown_away)
            return self._trained

        facts = described(args, self._objects, training)
        fit = start(self.monitor, self._objects, options, loader, self._notes, facts)
        self.run, self._rank = fit.run, fit.rank
        self._brackets = PhaseContexts(self.recorder, self.monitor.guard, fit.chosen)
        self._scaler, self._audit = fit.chosen.scaler, fit.audit
        reads = fit.chosen.clock is None
        self._passes = Passes(self.recorder, self._brackets, fit.audit, reads=reads)
        return fit

    def _listen(self, given: Mapping[str, object]) -> None:
        """Wrap the loader, hook the model and the Accelerator, until the training is over."""
        loader, module = given.get("train_dataloader"), self._objects.module
        cost = HookCost(monotonic_ns, self.monitor.guard, HookPrice.of_call(monotonic_ns))
        if hasattr(loader, ACCELERATED):
            self._wrap(loader, cost)
        for undo in self._passes.attach(module, given.get("optimizer"), cost):
            self._undo.callback(undo)
        self._cost = cost

    def _settle(self, cost: HookCost) -> None:
        """Time no more once it is clear what it costs."""
        recorder, batches = self.recorder, self._batches
        if recorder.draft is None:
            return
        switch_ns = cost.step_over(recorder.draft, traced=recorder.listener is not None)
        if switch_ns is None:
            return
        self._cost, self.monitor.switch_ns = None, switch_ns
        for untime in self._passes.untimed:
            untime()
        if batches is not None:
            batches.begins, batches.ends = self._brackets.fetch_begins, self._brackets.fetch_ends
        self._step_begins = self._untimed["on_step_begin"]
        for name in self._events.keys() & self._untimed.keys():
            self._events[name] = self._untimed[name]

    def _wrap(self, loader: object, cost: HookCost) -> None:
        inner, brackets = getattr(loader, ACCELERATED), self._brackets
        bracket = self.monitor.guard.bracket(self.hooks, self._copies, self._copied)
        source = self._fit.source if self._fit is not None else None
        begins, ends = cost.timed(brackets.fetch_begins), cost.timed(brackets.fetch_ends)
        carry = carried(loader, bracket)
        self._batches = BracketedBatches(inner, begins, ends, carry, source)
        setattr(loader, ACCELERATED, self._batches)
        self._undo.callback(setattr, loader, ACCELERATED, inner)

    def _guarded(self, function: Callable[..., object]) -> Callable[..., None]:
        return self.monitor.guard.hook(self.hooks, function)

    def _give_up(self) -> None:
        """After a fault of ours no step is measured any more: a part of one would be no step."""
        if self._batches is not None:
            self._batches.silent = True
        self._undo.close()
        self.recorder.abandon()

    # -- the loader ---------------------------------------------------------------------------

    def _copies(self) -> None:
        if self.recorder.awaits_batch:
            self.recorder.boundary()
        self._brackets[Phase.H2D.label].__enter__()

    def _copied(self) -> None:
        self._brackets[Phase.H2D.label].__exit__(None, None, None)

    # -- the step -----------------------------------------------------------------------------

    def _micro_batch(self, *, complete: bool) -> None:
        passes, audit = self._passes, self._audit
        if passes.now >= 0:
            passes.end()
        if audit is not None:
            audit.pause()
        batch, loss = passes.batch, passes.loss
        passes.batch = passes.loss = None
        if complete:
            self._to_callbacks()
        else:
            self.recorder.rest(_OTHER)
        begun = monotonic_ns()
        self.monitor.micro_batch(batch, loss, complete=complete, begun=begun)
        if audit is not None:
            audit.settle()
        if self._cost is not None:
            self._cost.without(begun)  # the monitor counts itself, and an audit is no usual cost
            if complete:
                self._settle(self._cost)

    # -- pauses -------------------------------------------------------------------------------

    def _next(self, control: TrainerControl) -> None:
        """What the Trainer does now, after the step and its logging."""
        if control.should_evaluate:
            self.recorder.enter_gap(Gap.VALIDATION)
        elif control.should_save:
            self.recorder.enter_gap(Gap.CHECKPOINT)
        elif self._unseen and self.recorder.draft is not None:
            self._waiting = True
            self._brackets.fetch_begins()

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
        notes = {"data_wait": LOADER_UNSEEN} if self._unseen else {}
        if self._passes.backward_unseen:
            notes["backward"] = BACKWARD_UNSEEN
        return notes

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has inherited us
            over = self._trained is not None and self._trained.over
            self.finish(FINISHED if over else raised_inside() or NOT_CLOSED)
