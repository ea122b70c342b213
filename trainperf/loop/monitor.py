"""Monitor of a plain PyTorch loop: the same measurements, files and report as under Lightning.

Phases are told apart with `with monitor.phase("forward"): …`; what no phase brackets is `other`::

    monitor = LoopMonitor("runs/a")
    for batch in monitor.batches(loader):
        loss = train_on(batch)
        monitor.end_step(loss)
    monitor.close()
"""

import atexit
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import Self

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.machine.clocks import HostClock, monotonic_ns, wall_clock_anchor
from trainperf.core.phases import Phase
from trainperf.core.places import storage
from trainperf.core.steps.records import FINISHED, NOT_CLOSED, ended_by
from trainperf.loop.finish import NEVER_ENDED, NO_BATCHES, finish_rank
from trainperf.loop.framework_objects import optimizers_in, schedulers_in, stepped_optimizer
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.loop.prepared_loaders import batches_of
from trainperf.loop.start import LoopOptions, demand_nothing_trained, device_of, kind_named, start
from trainperf.loop.timed_steps import TimedSteps
from trainperf.meters import Meter
from trainperf.recording.extensions import Extensions
from trainperf.recording.fit import PATIENCE
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.selection import FitObjects, ProbeSet
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.recording.sinks.base import Sink, Writer
from trainperf.recording.upload import Upload
from trainperf.trials import Trial, TrialOptions
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.start import MINUTES


log = logging.getLogger("trainperf")

T = TypeVar("T")

_CALLBACKS = int(Phase.CALLBACKS)
_NO_BATCH = object()
_RUNS = "runs"


class LoopMonitor:
    """Measures a loop that you wrote yourself.  The fit begins when this is made.

    Args:
        dirpath: Directory under which the run directory is made, or its URL (`s3://…`); `None`
            writes none.
        kind: `training`, or `inference`: a step is then a batch of requests that is answered.
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
        writer: A `SummaryWriter` for the readings.
        log_every_n_steps: Steps between two points in the writer.
        report: Whether to print the report when the fit ends.
        lines: Whether to sample the lines that the training thread is in, for 0.1 % of the time.
        machine: Whether to sample the machine, once a second, in a process of its own.
        clock: Host clock; tests pass their own, which is not sampled.
        meters: Your own (`trainperf.meters.Meter`), in addition to the built-in ones.
        probes: Your own (`trainperf.recording.probes.base.Probe`): facts that your meters need.
        sinks: Your own (`trainperf.recording.sinks.base.Sink`): they get every step and reading.
        aggregate: Whether *writer* gets readings over all ranks, too, while training.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    part = "start of the fit"

    def __init__(  # noqa: PLR0913 options that users name
        self,
        dirpath: str | Path | None = _RUNS,
        *,
        kind: Literal["training", "inference"] = "training",
        tokens: MaskFunction | None = None,
        writer: Writer | None = None,
        log_every_n_steps: int = 50,
        report: bool = True,
        lines: bool = True,
        machine: bool = True,
        clock: HostClock = monotonic_ns,
        meters: Sequence[Meter] = (),
        probes: Sequence[Probe] = (),
        sinks: Sequence[Sink] = (),
        aggregate: bool = False,
    ) -> None:
        if log_every_n_steps < 1:
            raise ConfigError(f"log_every_n_steps={log_every_n_steps}: must be at least 1; try 50")
        demand_mask(tokens)
        loop = kind_named(kind)
        self.monitor = Monitor(clock)
        own = None if dirpath is None or str(dirpath) == _RUNS else str(dirpath)
        launch = self._launch = LaunchOptions.of_this_process().joined(dirpath=own)
        demand_nothing_trained(loop, launch.trials)
        self._source: BatchSource | None = None
        self._objects = FitObjects(device=torch.device("cpu"), mask=tokens)
        self._options = LoopOptions(
            kind=loop,
            base=None if dirpath is None else storage(launch.dirpath or _RUNS),
            writer=writer,
            log_every=log_every_n_steps,
            aloud=report,
            lines=lines and clock is monotonic_ns,
            machine=machine and clock is monotonic_ns,
            started_at=wall_clock_anchor(),
            extensions=Extensions.of(meters, sinks, probes, aggregate=aggregate),
            audit=launch.audit_plan,
            loader_anatomy=launch.loader_anatomy,
            trials=TrialOptions(launch=launch.trials, ends=True) if launch.trials else None,
        )
        self.run: Path | None = None
        """The run directory, once the first epoch has begun; of one behind a URL, its spool."""
        self._upload: Upload | None = None
        self._chosen = ProbeSet()
        self._cost: TimedSteps | None = None
        self._brackets = self._contexts()
        self._audit: AuditProbe | None = None
        self._batch: object = _NO_BATCH
        self._attempted: set[int] = set()
        self._ended, self._unended, self._rank, self._pid = False, 0, 0, os.getpid()
        atexit.register(self._at_exit)

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
            device: Where the model is; by default its first parameter's device.
            schedulers: Their steps are counted.

        Raises:
            ConfigError: The first epoch has begun already, or an inference loop would train.
        """
        self._demand_not_started("watch")
        demand_nothing_trained(self._options.kind, optimizers, scaler, schedulers)
        model = model if isinstance(model, torch.nn.Module) else torch.nn.ModuleList(model)
        self._objects = replace(
            self._objects,
            device=device_of(device, model),
            module=model,
            optimizers=optimizers_in(optimizers),
            schedulers=schedulers_in(schedulers),
            scaler=scaler,
        )
        return self

    def profile(self, profile: ScheduledProfile) -> Self:
        """Say which steps are traced, before the first epoch.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._demand_not_started("profile")
        self._options = replace(self._options, profiler=profile)
        return self

    def audit(self, at: int = 20) -> Self:
        """Ask for an audit of one step: each of its operators goes to `audit.json`.

        That step takes longer, and no statistic counts it.

        Args:
            at: Its number in this fit, from 0.

        Raises:
            ConfigError: The first epoch has begun already, or there is no such step.
        """
        self._demand_not_started("audit")
        if at < 0:
            raise ConfigError(f"at={at}: steps count from 0; try at=20")
        self._options = replace(self._options, audit=self._launch.joined(audit_at=at).audit_plan)
        return self

    def loader_anatomy(self) -> Self:
        """Ask for a look into the loader before its first batch, for two seconds.

        What a batch costs in `__getitem__`, collate and transport goes to `loader.json`.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._demand_not_started("loader_anatomy")
        self._options = replace(self._options, loader_anatomy=True)
        return self

    def trials(self, own: Sequence[Trial] = (), *, minutes: float = MINUTES) -> Self:
        """Ask for trials: changes are switched on and off, to see what they bring.

        After each one the weights, the optimizer and the random generators are put back, and the
        fit goes on where it was.  Results are in `trials.json`.

        Args:
            own: Trials of your own, tried before the built-in ones.
            minutes: For all of them together.

        Raises:
            ConfigError: The first epoch has begun already, or a trial or all of them are refused.
        """
        self._demand_not_started("trials")
        demand_nothing_trained(self._options.kind, minutes)
        given = self._options.trials  # under `trainperf try` its options hold
        trials = TrialOptions.of(own, minutes) if given is None else replace(given, own=tuple(own))
        self._options = replace(self._options, trials=trials)
        return self

    # -- the loop -----------------------------------------------------------------------------

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches, one epoch; the time each takes to come is data wait."""
        if not self._measures(loader):
            for batch in loader:  # `yield from` would close a loader that is a generator
                yield batch
            return
        iterator = batches_of(loader, self._brackets[Phase.H2D.label], self._source)
        try:
            while True:
                if self._batch is not _NO_BATCH:
                    self._unended_batch()
                brackets = self._brackets  # others, once it is clear what these cost
                brackets.fetch_begins()
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                finally:
                    brackets.fetch_ends()
                self._batch = batch
                if self._audit is not None:
                    self._audit.begin_batch()
                yield batch
        finally:  # the loop may have been left in the middle of a batch
            self._epoch_ended()

    def phase(self, name: str, optimizer: Optimizer | None = None) -> AbstractContextManager[None]:
        """Everything inside belongs to a phase or gap; nested phases pause the outer one.

        Args:
            name: `h2d`, `forward`, `backward`, `optimizer`, `callbacks`; or a gap, which is cut
                out of the step: `validation`, `checkpoint`.
            optimizer: Which one is stepped, where a scaler serves several.

        Raises:
            ConfigError: There is no phase of that name.
        """
        if self._chosen.scaler is not None and name == Phase.OPTIMIZER.label:
            self.monitor.guard.run(self._chosen.scaler.name, lambda: self._attempt(optimizer))
        return self._brackets[name]

    def end_step(self, loss: object = None) -> None:
        """The step is complete: the optimizer was stepped, once per group with accumulation.

        In an inference loop: the batch was answered.

        Args:
            loss: The step's loss, a tensor of one element; copied, never waited for.  An inference
                loop has none.
        """
        self._ended, batch = True, self._batch
        if batch is _NO_BATCH:
            return
        if self._audit is not None:
            self._audit.pause()
        self._batch = _NO_BATCH
        self._attempted.clear()
        monitor = self.monitor
        monitor.recorder.enter(_CALLBACKS)
        monitor.micro_batch(batch, loss, complete=True)
        if self._audit is not None and self._audit.settle():
            self._audit = None
        monitor.recorder.last_hook_left()

    # -- the end ------------------------------------------------------------------------------

    def close(self, reason: str = FINISHED) -> None:
        """End the fit: close the files, write the summary, print the report on rank 0."""
        atexit.unregister(self._at_exit)
        if self.monitor.finished:
            return
        if reason in (FINISHED, NOT_CLOSED) and self._batch is not _NO_BATCH:
            self._unended_batch()
        if self._ended and self.monitor.recorder.index < 0 and not self.monitor.guard.faults:
            log.warning("trainperf: %s", NO_BATCHES)
        self.monitor.finish(reason)
        finish_rank(
            self.monitor.guard,
            self.run if self._rank == 0 else None,
            ranks=self._objects.world_size,
            reason=reason,
            aloud=self._options.aloud,
            writer=self._options.writer,
        )
        if self._upload is not None:
            self.monitor.guard.run(Upload.part, self._upload.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ended_by(kind))

    def _demand_not_started(self, method: str) -> None:
        if self.monitor.started:
            raise ConfigError(f"{method}(): the first epoch has begun; call it before batches()")

    def _measures(self, loader: object) -> bool:
        """Whether the fit is measured; it begins here, with the first epoch."""
        guard = self.monitor.guard
        if not self.monitor.started and not self.monitor.finished:
            guard.run(self.part, lambda: self._start(loader))
        off = {self.part, Monitor.part} & guard.faults.keys()
        return not off and not self.monitor.recorder.inside_gap and not self.monitor.finished

    def _start(self, loader: object) -> None:
        fit = start(self.monitor, self._objects, self._options, loader, self._notes)
        self.run, self._rank, self._chosen, self._audit = fit.run, fit.rank, fit.chosen, fit.audit
        self._source, self._upload = fit.source, fit.upload
        if type(self).end_step is LoopMonitor.end_step:
            self._cost = TimedSteps.of(self.monitor, self, self._settle)
        self._brackets = self._contexts()

    def _settle(self) -> None:
        """Time no more: it is clear what a step costs."""
        self._cost = None
        self._brackets = self._contexts()

    def _contexts(self) -> PhaseContexts:
        own, trains = self.monitor, self._options.kind.trains
        return PhaseContexts(own.recorder, own.guard, self._chosen, trains=trains, cost=self._cost)

    def _unended_batch(self) -> None:
        """The loop went on without ending the step: more of its batches follow."""
        if self._audit is not None:
            self._audit.pause()
        complete = not self._ended and self._assume_batch_is_step()
        if not complete and self._chosen.scaler is not None:
            self.monitor.guard.run(self._chosen.scaler.name, self._chosen.scaler.withdraw)
        batch, self._batch = self._batch, _NO_BATCH
        self._attempted.clear()
        monitor = self.monitor
        monitor.recorder.enter(_CALLBACKS)
        monitor.micro_batch(batch, None, complete=complete)
        monitor.recorder.last_hook_left()

    def _assume_batch_is_step(self) -> bool:
        """Whether so many batches have passed without a step's end that each must be one."""
        self._unended += 1
        if self._unended == PATIENCE + 1:
            log.warning("trainperf: %s", NEVER_ENDED)
        return self._unended > PATIENCE

    def _epoch_ended(self) -> None:
        if self._audit is not None:
            self._audit.pause()
        if not self.monitor.finished:
            self._batch = _NO_BATCH
            self.monitor.recorder.epoch_ended()

    def _attempt(self, optimizer: Optimizer | None) -> None:
        stepped = stepped_optimizer(optimizer, self._objects.optimizers)
        if self._chosen.scaler is not None and id(stepped) not in self._attempted:
            self._attempted.add(id(stepped))  # zero_grad and update may have phases of their own
            self._chosen.scaler.attempt(stepped)

    def _notes(self) -> dict[str, str]:
        return {"step": NEVER_ENDED} if not self._ended and self._unended > PATIENCE else {}

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has inherited us
            self.close(NOT_CLOSED)
