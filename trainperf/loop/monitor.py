"""Monitor of a plain PyTorch loop: the same measurements, files and report as under Lightning.

Phases are told apart with `with monitor.phase("forward"): …`; what no phase brackets is `other`::

    monitor = LoopMonitor("runs/a")
    for batch in monitor.batches(loader):
        loss = train_on(batch)
        monitor.end_step(loss)
    monitor.close()
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import Self

from trainperf.accelerators import accelerator_of
from trainperf.core.errors import ConfigError
from trainperf.core.loop_kind import INFERENCE, PLAIN, LoopKind
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.phases import FIRST_GAP, Phase
from trainperf.core.steps.own_sums import ANSWERS, count_answers
from trainperf.core.steps.records import FINISHED, NOT_CLOSED, ended_by
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.framework_objects import optimizers_in, schedulers_in, stepped_optimizer
from trainperf.loop.options import FitOptions
from trainperf.loop.phase_contexts import END_STEP, MOVES
from trainperf.loop.prepared_loaders import batches_of
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.inference import InferenceProbe
from trainperf.recording.probes.plain_loop import PlainLoopProbe
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.sinks.base import Writer
from trainperf.recording.sinks.loggers import Outputs


log = logging.getLogger("trainperf")

T = TypeVar("T")

NO_DEVICE_COPY = 'not measured: put the copy into `with monitor.phase("h2d"):`'
NEVER_ENDED = "end_step() was not called"
NO_BATCHES = (
    "no step was measured: end_step() was called, but no batch came through the monitor; iterate "
    "over monitor.batches(loader)"
)

_CALLBACKS, _LOOP = MOVES[END_STEP].slot, MOVES[END_STEP].next_slot
_NO_BATCH = object()
_RUNS = "runs"
_KINDS = {"training": PLAIN, INFERENCE.name: INFERENCE}


@dataclass(eq=False, repr=False)
class LoopMonitor(FitOptions, AbstractContextManager["LoopMonitor"]):
    """Measures a loop that you wrote yourself.  The fit begins when this is made.

    Takes the options of every fit (`trainperf.loop.FitOptions`), and these.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    dirpath: str | Path | None = _RUNS
    """Directory under which the run directory is made, or its URL (`s3://…`); `None` writes
    none."""
    kind: Literal["training", "inference"] = field(default="training", kw_only=True)
    """`training`, or `inference`: a step is then a batch of requests that is answered."""
    writer: Writer | None = field(default=None, kw_only=True)
    """A `SummaryWriter` for the readings."""
    clock: HostClock = field(default=monotonic_ns, kw_only=True)
    """Host clock, nanoseconds; tests pass their own, which is not sampled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in _KINDS:
            raise ConfigError(f"kind={self.kind!r}: must be one of {', '.join(map(repr, _KINDS))}")
        self._kind = _KINDS[self.kind]
        _demand_nothing_trained(self._kind, self.launched().trials, self.trials)
        self._fit = Fit(self, self.clock)
        self._fit.on_end = self._end
        self._renew_phases()
        self.monitor = self._fit.monitor
        self._objects = FitObjects(device=torch.device("cpu"), mask=self.tokens)
        self._place: torch.device | str | None = None
        self._batch: object = _NO_BATCH
        self._attempted: set[int] = set()
        self._ended = False
        self._left = False
        """Whether the last epoch was not over when the loop left it."""

    @property
    def run(self) -> Path | None:
        """The run directory, once the first epoch has begun; of one behind a URL, its spool."""
        return self._fit.run

    # -- before the first epoch ----------------------------------------------------------------

    def watch(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module],
        optimizers: Optimizer | Sequence[Optimizer] = (),
        scaler: torch.amp.GradScaler | None = None,
        device: torch.device | str | None = None,
        schedulers: LRScheduler | Sequence[LRScheduler] = (),
    ) -> Self:
        """Say what the loop runs, before the first epoch: names the run and finds its device.

        Args:
            model: The module as it is called, or several, as Accelerate, Fabric or DeepSpeed has
                prepared it; wrapped in DDP, its all-reduce tail is measured.
            optimizers: Those under the scaler.
            scaler: Its overflows are counted around `phase("optimizer")`.
            device: Where it computes; by default the device beside the host on which a parameter
                is when the first epoch begins, else the host.
            schedulers: Their steps are counted.

        Raises:
            ConfigError: The first epoch has begun already, or an inference loop would train.
        """
        if self.monitor.started:
            raise ConfigError("watch(): the first epoch has begun; call it before batches()")
        _demand_nothing_trained(self._kind, optimizers, scaler, schedulers)
        model = model if isinstance(model, torch.nn.Module) else torch.nn.ModuleList(model)
        self._place = device
        self._objects = replace(
            self._objects,
            module=model,
            optimizers=optimizers_in(optimizers),
            schedulers=schedulers_in(schedulers),
            scaler=scaler,
        )
        return self

    # -- the loop -----------------------------------------------------------------------------

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches, one epoch; the time each takes to come is data wait."""
        fit = self._fit
        if not self._measures(loader):
            for batch in loader:  # `yield from` would close a loader that is a generator
                yield batch
            return
        iterator = batches_of(loader, fit.phases[Phase.H2D.label], fit.through)
        self._left = True
        try:
            while True:
                if self._batch is not _NO_BATCH:
                    self._unended_batch()
                phases = fit.phases  # others, once it is clear what these cost
                phases.fetch_begins()
                try:
                    batch = next(iterator)
                except StopIteration:
                    self._left = False
                    break
                finally:
                    phases.fetch_ends()
                self._batch = batch
                fit.begin_batch()
                yield batch
        finally:  # the loop may have been left in the middle of a batch
            self._epoch_ended()

    def phase(self, name: str, optimizer: Optimizer | None = None) -> AbstractContextManager[None]:
        """Everything inside belongs to a phase or gap; nested phases pause the outer one.

        Args:
            name: `h2d`, `forward`, `backward`, `optimizer`, `callbacks`; a gap, which is cut out
                of the step: `validation`, `checkpoint`; or a name of your own, e.g. `rollout`.
            optimizer: Which one is stepped, where a scaler serves several.

        Raises:
            ConfigError: The name is that of a phase which begins by itself, e.g. `data_wait`.
        """
        fit, scaler = self._fit, self._fit.chosen.scaler
        if scaler is not None and name == Phase.OPTIMIZER.label:
            fit.guard.run(scaler.name, lambda: self._attempt(scaler, optimizer))
        return fit.phases[name]

    def answers(self, lengths: Sequence[int], useless: float | None = None) -> None:
        """The policy has generated answers, in a loop of post-training: how long each one is.

        Args:
            lengths: Of the answers of one rollout, in tokens, numbers of Python.
            useless: Share of answers from which nothing is learned, if it is known.

        Raises:
            ConfigError: They are a tensor, which a device may have to be waited for, or an array.
        """
        if hasattr(lengths, "tolist"):
            raise ConfigError("answers: lengths are numbers of Python: lengths.tolist()")
        self._fit.guard.run(
            ANSWERS, lambda: count_answers(self._fit.recorder.count, lengths, useless)
        )

    def end_step(self, loss: object = None) -> None:
        """The step is complete: the optimizer was stepped, once per group with accumulation.

        In an inference loop: the batch was answered.

        Args:
            loss: The step's loss, a tensor of one element; copied, never waited for.  An inference
                loop has none.
        """
        self._ended, self._fit.assumed = True, ""
        if self._batch is not _NO_BATCH:
            self._batch_ended(loss, complete=True)

    # -- the end ------------------------------------------------------------------------------

    def close(self, reason: str = FINISHED) -> None:
        """End the fit: close the files, write the summary, print the report on rank 0."""
        self._fit.end(reason)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ended_by(kind))

    # -- inside -------------------------------------------------------------------------------

    def _measures(self, loader: object) -> bool:
        """Whether the fit is measured; it begins here, with the first epoch."""
        fit = self._fit
        if not self.monitor.started and not self.monitor.finished:
            fit.start(lambda: self._facts(loader))
            if self.clock is monotonic_ns:
                fit.time(self._renew_phases)
        return fit.measured and not fit.recorder.inside_gap

    def _facts(self, loader: object) -> FitFacts:
        module = self._objects.module
        if module is not None:  # it may have been moved since
            self._objects.device = device_of(self._place, module)
        return FitFacts(
            objects=self._objects,
            base=None if self.dirpath is None else self.dirpath or _RUNS,
            kind=self._kind,
            loader=loader,
            outputs=Outputs(writer=self.writer),
            probes=_watchers(self._objects, self._kind),
            reasons=no_device_copy(self._objects.device),
        )

    def _renew_phases(self) -> None:
        self._fit.renew_phases(self._kind)
        self._rest = self._fit.timed(self._fit.recorder.rest)

    def _batch_ended(self, loss: object, *, complete: bool) -> None:
        fit, recorder, batch = self._fit, self._fit.recorder, self._batch
        self._batch = _NO_BATCH
        self._attempted.clear()
        if recorder.slot >= FIRST_GAP:  # which goes on
            fit.micro_batch(batch, loss, complete=complete)
            return
        self._rest(_CALLBACKS)
        fit.micro_batch(batch, loss, complete=complete, begun=recorder.switched_ns)
        recorder.rest(_LOOP)

    def _unended_batch(self) -> None:
        """The loop went on without ending the step: more of its batches follow."""
        complete = self._fit.batch_is_step(NEVER_ENDED)
        scaler = self._fit.chosen.scaler
        if not complete and scaler is not None:
            self._fit.guard.run(scaler.name, scaler.withdraw)
        self._batch_ended(None, complete=complete)

    def _end(self, reason: str) -> None:
        if reason in (FINISHED, NOT_CLOSED) and self._batch is not _NO_BATCH:
            self._unended_batch()
        if self._left and reason not in (FINISHED, NOT_CLOSED):
            self.monitor.recorder.no_epoch_follows()
        if self._ended and self.monitor.recorder.index < 0 and not self._fit.guard.faults:
            log.warning("trainperf: %s", NO_BATCHES)

    def _epoch_ended(self) -> None:
        self._fit.pause_audit()
        if not self.monitor.finished:
            self._batch = _NO_BATCH
            self.monitor.recorder.epoch_ended()

    def _attempt(self, scaler: ScalerProbe, optimizer: Optimizer | None) -> None:
        stepped = stepped_optimizer(optimizer, self._objects.optimizers)
        if id(stepped) not in self._attempted:
            self._attempted.add(id(stepped))  # zero_grad and update may have phases of their own
            scaler.attempt(stepped)


def device_of(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    """The device that the user named, else that of the model's first parameter beside the host."""
    if device is not None:
        return torch.device(device)
    places = (parameter.device for parameter in model.parameters())
    return next((p for p in places if p.type not in ("cpu", "meta")), torch.device("cpu"))


def no_device_copy(device: torch.device) -> dict[str, str]:
    """Why a plain loop has no device time of its copies, where it brackets none."""
    return {} if accelerator_of(device).unified else {"h2d_device_ns": NO_DEVICE_COPY}


def _demand_nothing_trained(kind: LoopKind, *training: object) -> None:
    """Optimizers, a scaler, schedulers and trials only where the loop trains.

    Raises:
        ConfigError: An inference loop was given any of them.
    """
    if not kind.trains and any(training):
        raise ConfigError(
            f'kind="{kind.name}": nothing is trained; call watch(model) without optimizers, scaler '
            "and schedulers, and try no changes, or leave kind out"
        )


def _watchers(objects: FitObjects, kind: LoopKind) -> tuple[Probe, ...]:
    """What tells of a plain loop what a framework would; of several modules by the first."""
    module = objects.module
    models: list[torch.nn.Module | None] = (
        list(module) if isinstance(module, torch.nn.ModuleList) else [module]
    )
    loop = PlainLoopProbe(next(iter(models), None), objects.device.type, trains=kind.trains)
    if kind.trains:
        return (loop,)
    return loop, InferenceProbe([each for each in models if each is not None], objects.device)
