"""One training of a Hugging Face `Trainer` under measurement: its events and hooks, as a timeline.

Events alone cannot do it: all micro-batches of an update are fetched before its first event, and
there is none between forward and backward.  So the loader is wrapped, the model's forward has a
hook, and Accelerate's `backward` a bracket.
"""

from functools import partial

import transformers
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Gap, Phase
from trainperf.huggingface import moves
from trainperf.huggingface.moves import MOVES
from trainperf.huggingface.passes import Passes, Place
from trainperf.huggingface.post_training import bracket_post_training, count_useless
from trainperf.huggingface.run_info import (
    configuration,
    keeps_logits,
    objects,
    trainer_of,
    writer_of,
)
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.framework_objects import stand_in
from trainperf.loop.prepared_loaders import ACCELERATED, BracketedBatches, carried
from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import nothing
from trainperf.recording.sinks.loggers import CurveSink, Outputs
from trainperf.recording.step_cost import HookPrice


_DATA_WAIT, _OPTIMIZER = MOVES[moves.BATCH].slot, MOVES["on_pre_optimizer_step"].slot
_CALLBACKS, _OTHER = MOVES["on_optimizer_step"].slot, MOVES["on_substep_end"].slot

LOADER_UNSEEN = (
    "the batches do not come through this rank's loader (dispatched by rank 0, or the epoch was "
    "resumed amid): data wait is the time from the end of a step to the beginning of the next"
)
BACKWARD_UNSEEN = "backward was not called through Accelerate, so it counts as forward"


class MeasuredTraining:
    """One `Trainer.train()`.  Made in `on_train_begin`.

    Args:
        fit: That has begun.
        callback: That the Trainer tells of its events; while the fit goes on they come here.  The
            Trainer itself is not held, so that its end is that of the hooks on its model.
        state: Of the training that begins; it is not held, either.
    """

    def __init__(self, fit: Fit, callback: TrainerCallback, state: TrainerState) -> None:
        self.fit = fit
        self.recorder = fit.recorder
        self._batches: BracketedBatches | None = None
        self._under: int | None = None
        """What goes on after a pause that nobody announced."""
        self._passes = Passes(fit)
        self._places: list[Place] = []
        fit.start(
            lambda: self._facts(trainer_of(callback, state)),
            lambda: self._listen(callback, trainer_of(callback, state)),
        )

    # -- the start ----------------------------------------------------------------------------

    def _facts(self, trainer: "transformers.Trainer") -> FitFacts:
        fit, args, state = self.fit, trainer.args, trainer.state
        self._objects = objects(trainer, fit.options.tokens)
        make = partial(writer_of, args, state, fit.closing)
        return FitFacts(
            objects=self._objects,
            base=args.output_dir or ".",
            kind=HUGGING_FACE,
            loader=trainer.callback_handler.train_dataloader,
            config={
                **configuration(args, self._objects),
                "evaluation_keeps_logits": keeps_logits(trainer),
            },
            outputs=Outputs(writer=None if fit.tries else fit.guard.run(CurveSink.name, make)),
            log_every=max(1, int(state.logging_steps or 50)),
            notes=self._notes,
            micro_batches=args.gradient_accumulation_steps,
            trials=partial(_trials, trainer),
        )

    def _listen(self, callback: TrainerCallback, trainer: "transformers.Trainer") -> None:
        """Hear of events, of the loader, the model and the Accelerator, until the end."""
        fit, events, loader = self.fit, vars(callback), trainer.callback_handler.train_dataloader
        for name in MOVES:
            if hasattr(self, name):
                hears = fit.guard.hook(Fit.hooks, getattr(self, name))
                self._places.append((partial(events.__setitem__, name), hears))
                fit.undo.callback(events.pop, name, None)
        self._places += self._passes.attach(trainer, fit.undo)
        if hasattr(loader, ACCELERATED):
            self._wrap(loader)
        self._generates = bracket_post_training(fit, trainer)
        fit.time(self._hear, HookPrice(monotonic_ns, passes=False))

    def _wrap(self, loader: object) -> None:
        fit, inner, phases = self.fit, getattr(loader, ACCELERATED), self.fit.phases
        copied = partial(phases[Phase.H2D.label].__exit__, None, None, None)
        carry = carried(loader, fit.guard.bracket(Fit.hooks, self._copies, copied))
        self._batches = batches = BracketedBatches(inner, nothing, nothing, carry, fit.through)
        self._places.append((partial(setattr, batches, "begins"), phases.fetch_begins))
        self._places.append((partial(setattr, batches, "ends"), phases.fetch_ends))
        stand_in(loader, ACCELERATED, batches, fit.undo)
        fit.undo.callback(vars(batches).update, begins=nothing, ends=nothing, carry=None)

    def _hear(self) -> None:
        """Have everything called in its place, timed as long as its cost is not settled."""
        for put, hears in self._places:
            put(self.fit.timed(hears))

    @property
    def _unseen(self) -> bool:
        """Whether batches come in another way than through the loader, as far as is known."""
        return self._batches is None or not self._batches.in_use

    # -- what the Trainer tells, by the names of its events -------------------------------------

    def on_epoch_begin(self, *_: object) -> None:
        """Nobody has asked the loader yet; it may be another one in this epoch."""
        if self._batches is not None:
            self._batches.in_use = False

    def on_step_begin(self, *_: object) -> None:
        """All batches of the next step are there."""
        if not self._unseen:
            return
        if self.fit.tried:
            raise TrialsOver
        phases, recorder = self.fit.phases, self.recorder
        if recorder.awaits_batch:
            phases.fetch_begins()
        if recorder.slot == _DATA_WAIT:
            phases.fetch_ends()

    def on_substep_end(self, *_: object) -> None:
        """Forward and backward of a micro-batch that is not the last of its step are over."""
        self._micro_batch(complete=False)

    def on_pre_optimizer_step(self, *_: object) -> None:
        """`optimizer.step()` is about to be called, perhaps under a scaler."""
        for optimizer in self._objects.optimizers:
            self.fit.attempt(optimizer)
        self.fit.phases.rest(_OPTIMIZER)

    def on_optimizer_step(self, *_: object) -> None:
        """It has returned."""
        self.recorder.rest(_CALLBACKS)

    def on_step_end(self, _args: object, _state: object, control: TrainerControl) -> None:
        """The step is complete; logging, evaluation and saving follow."""
        self._micro_batch(complete=True)
        self._unless_logged(control)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *_: object
    ) -> None:
        """Metrics were logged; those of an evaluation before it is over."""
        if self._generates:
            count_useless(self.recorder, state, args)
        if self._under is None and not self.recorder.inside_gap:
            self._next(control)

    def on_prediction_step(self, *_: object) -> None:
        """An evaluation is under way, and perhaps nobody has announced it."""
        self._paused(Gap.VALIDATION)

    def on_evaluate(self, _args: object, _state: object, control: TrainerControl) -> None:
        """An evaluation is over, or another pause."""
        if self._under is not None:
            self.recorder.rest(self._under)
            self._under = None
        elif self.recorder.inside_gap:
            self.recorder.leave()
        self._next(control)

    on_predict = on_evaluate

    def on_save(self, args: object, state: object, control: TrainerControl) -> None:
        """A checkpoint was written."""
        self._paused(Gap.CHECKPOINT)
        self.on_evaluate(args, state, control)

    def on_epoch_end(self, _args: object, _state: object, control: TrainerControl) -> None:
        """No further batch follows in this epoch."""
        self.recorder.epoch_ended()
        self._unless_logged(control)

    def _unless_logged(self, control: TrainerControl) -> None:
        """What follows, without a log; of a training that is thrown away nothing is evaluated."""
        if self.fit.tries:
            control.should_evaluate = control.should_save = False
        if not control.should_log:
            self._next(control)

    # -- the loader ---------------------------------------------------------------------------

    def _copies(self) -> None:
        if self.recorder.awaits_batch:
            self.recorder.boundary()
        self.fit.phases[Phase.H2D.label].__enter__()

    # -- the step -----------------------------------------------------------------------------

    def _micro_batch(self, *, complete: bool) -> None:
        passes = self._passes
        batch, loss = passes.batch, passes.loss
        passes.batch = passes.loss = None
        passes.backward_unseen |= loss is None and batch is not None
        self.fit.phases.rest(_CALLBACKS if complete else _OTHER)
        self.fit.micro_batch(batch, loss, complete=complete, begun=monotonic_ns())

    # -- pauses -------------------------------------------------------------------------------

    def _next(self, control: TrainerControl) -> None:
        """What the Trainer does now, after the step and its logging."""
        if control.should_evaluate:
            self.recorder.enter_gap(Gap.VALIDATION)
        elif control.should_save:
            self.recorder.enter_gap(Gap.CHECKPOINT)
        elif self._unseen and self.recorder.draft is not None:
            self.fit.phases.fetch_begins()

    def _paused(self, gap: Gap) -> None:
        """A pause that may not have been announced: then it has lasted since the last event."""
        if self._under is None and not self.recorder.inside_gap:
            self._under = self.recorder.ground
            self.recorder.rest(gap, since_last=True)

    def _notes(self) -> dict[str, str]:
        notes = {"data_wait": LOADER_UNSEEN} if self._unseen else {}
        if self._passes.backward_unseen:
            notes["backward"] = BACKWARD_UNSEEN
        return notes


def _trials(trainer: "transformers.Trainer", fit: Fit, facts: FitFacts) -> Probe:
    from trainperf.huggingface.trials import HuggingFaceTraining  # noqa: PLC0415 it loads every change there is

    return HuggingFaceTraining(fit, facts, trainer).probe()
