"""An adapter for PyTorch-Ignite, to be copied: what an `Engine` tells, as phases of a fit.

    measure = TrainPerfHandlers(dirpath="runs/ignite").attach(trainer, model, optimizer)
    measure.validates(evaluator)
    with measure:
        trainer.run(loader, max_epochs=2)

Attach it before your own handlers: those of an event are called in the order in which they came.

Phases: `data_wait` goes from GET_BATCH_STARTED to GET_BATCH_COMPLETED, `forward` from the model's
call to the first gradient of what it returns (so it has the loss), `backward` from there to the
optimizer's step, `callbacks` is the time of handlers, `loop` what the engine does between two
iterations.  The rest of the process function, e.g. `zero_grad` and the copy to a device, is
`other`.  An evaluator's run is a gap, and so is a handler that `checkpoint` was given.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import ModelCheckpoint
from ignite.metrics import Loss
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import Self

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.phases import Gap, Phase
from trainperf.core.steps.records import ended_by
from trainperf.loop import FitOptions
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.framework_objects import optimizers_in
from trainperf.loop.monitor import device_of, no_device_copy
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.process_objects import UntracedHook


@dataclass(kw_only=True, eq=False, repr=False)
class TrainPerfHandlers(FitOptions):
    """Handlers of an engine that trains.  Takes the options of every fit (`FitOptions`), and one.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    dirpath: str | Path | None = None
    gradient_accumulation_steps: int = 1
    """Iterations per update, as `create_supervised_trainer` was given."""

    def attach(
        self,
        trainer: Engine,
        model: nn.Module,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        scaler: torch.amp.GradScaler | None = None,
    ) -> Self:
        """Measure the next run of *trainer*, from now on; the time until then is its startup."""
        device = device_of(None, model)
        self._objects = FitObjects(
            device=device, module=model, optimizers=optimizers_in(optimizer), scaler=scaler
        )
        self._model, self._trainer = model, trainer
        self._open = ""
        """The phase that goes on; none between two."""
        self._fit = Fit(self)
        self._on(trainer, Events.STARTED, self._starts)
        for event, phases in self._first.items():
            self._on(trainer, event, phases)
        return self

    def validates(self, evaluator: Engine) -> Self:
        """Count each run of *evaluator* while the trainer runs as the gap `validation`."""
        gap = self._fit.phases[Gap.VALIDATION.label]
        self._on(evaluator, Events.STARTED, gap.__enter__)
        self._on(evaluator, Events.COMPLETED, lambda: gap.__exit__(None, None, None))
        return self

    def checkpoint(self, handler: Callable[..., object]) -> Callable[..., object]:
        """A handler that does the same, and whose time is the gap `checkpoint`."""

        @wraps(handler)
        def saves(*args: object, **options: object) -> object:
            with self._fit.phases[Gap.CHECKPOINT.label]:
                return handler(*args, **options)

        return saves

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the fit of a run that raised.

        No handler of EXCEPTION_RAISED does: an engine with one takes the exception for handled.
        """
        self._fit.end(ended_by(kind))

    # -- events -------------------------------------------------------------------------------

    @property
    def _first(self) -> Mapping[Events, Callable[[], object]]:
        """What is done before the handlers that were added later."""
        return {
            Events.GET_BATCH_COMPLETED: self._batch_comes,
            Events.ITERATION_COMPLETED: self._iteration_ends,
            Events.EPOCH_COMPLETED: self._epoch_ends,
        }

    @property
    def _last(self) -> Mapping[Events, Callable[[], object]]:
        """What is done after all handlers that there are as the run begins."""
        return {
            Events.GET_BATCH_STARTED: self._asks_for_batch,
            Events.ITERATION_STARTED: self._move,
            Events.ITERATION_COMPLETED: self._handlers_end,
            Events.COMPLETED: self._fit.end,
        }

    def _on(self, engine: Engine, event: Events, act: Callable[[], object]) -> None:
        """Have *act* called at an event, under the guard, until the fit is over."""
        handler = self._fit.guard.hook(Fit.hooks, lambda *_: act())
        engine.add_event_handler(event, handler)
        self._fit.undo.callback(engine.remove_event_handler, handler, event)

    def _starts(self) -> None:
        if not self._fit.monitor.started:
            self._fit.start(self._facts, self._listen)

    def _listen(self) -> None:
        for event, act in self._last.items():
            self._on(self._trainer, event, act)
        self._hook(self._model.register_forward_pre_hook, self._forward_begins)
        self._hook(self._model.register_forward_hook, self._forward_returns)
        for optimizer in self._objects.optimizers:
            self._hook(optimizer.register_step_pre_hook, lambda *_: self._move(Phase.OPTIMIZER))
            self._hook(optimizer.register_step_post_hook, lambda *_: self._move())

    def _hook(self, register: Callable[..., Any], act: Callable[..., object]) -> None:
        hook = register(UntracedHook(self._fit.guard.hook(Fit.hooks, act)))
        self._fit.undo.callback(hook.remove)

    def _facts(self) -> FitFacts:
        objects, state = self._objects, self._trainer.state
        return FitFacts(
            objects=objects,
            base="runs",
            loader=state.dataloader,
            micro_batches=self.gradient_accumulation_steps,
            period=state.epoch_length or 0,
            reasons=no_device_copy(objects.device),
            takes_batches=False,
        )

    # -- the timeline -------------------------------------------------------------------------

    def _move(self, phase: Phase | None = None) -> None:
        """End the phase that goes on, and begin another one."""
        brackets = self._fit.phases
        if self._open:
            brackets[self._open].__exit__(None, None, None)
        self._open = "" if phase is None else phase.label
        if phase is not None:
            brackets[self._open].__enter__()

    def _asks_for_batch(self) -> None:
        self._move()
        if self._fit.tried:
            raise TrialsOver
        self._fit.phases.fetch_begins()

    def _batch_comes(self) -> None:
        if self._fit.monitor.started:
            self._fit.phases.fetch_ends()
            self._move(Phase.CALLBACKS)
            self._fit.begin_batch()

    def _forward_begins(self, module: nn.Module, _: object) -> None:
        trained = module.training and torch.is_grad_enabled()
        if trained and not self._open and not self._fit.recorder.inside_gap:
            self._move(Phase.FORWARD)

    def _forward_returns(self, _: nn.Module, __: object, output: object) -> None:
        if self._open != Phase.FORWARD.label:
            return
        several = list(output.values()) if isinstance(output, Mapping) else output
        for head in several if isinstance(several, list | tuple) else (several,):
            if isinstance(head, torch.Tensor) and head.requires_grad:
                head.register_hook(self._fit.guard.hook(Fit.hooks, self._gradient_comes))

    def _gradient_comes(self, _: torch.Tensor) -> None:
        if self._open == Phase.FORWARD.label:
            self._move(Phase.BACKWARD)

    def _iteration_ends(self) -> None:
        fit, state = self._fit, self._trainer.state
        if fit.monitor.started:
            self._move(Phase.CALLBACKS)
            complete = state.iteration % self.gradient_accumulation_steps == 0
            begun = fit.recorder.switched_ns
            fit.micro_batch(state.batch, state.output, complete=complete, begun=begun)

    def _handlers_end(self) -> None:
        self._move()
        self._fit.recorder.last_hook_done()

    def _epoch_ends(self) -> None:
        if self._fit.monitor.started:
            self._open = ""  # of an epoch that was terminated in the middle of a phase
            self._fit.recorder.epoch_ended()


def main() -> None:
    """Train two epochs on noise, as ignite's `mnist` example does."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 1, 28, 28), torch.randint(0, 10, (640,)))
    loader, held_out = DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, 160)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1352, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, {"loss": Loss(criterion)})
    measure = TrainPerfHandlers(dirpath="runs/ignite").attach(trainer, model, optimizer)
    measure.validates(evaluator)

    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(held_out))
    saves = measure.checkpoint(ModelCheckpoint("runs/kept", "digits", require_empty=False))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saves, {"model": model})
    with measure:
        trainer.run(loader, max_epochs=2)


if __name__ == "__main__":
    main()
