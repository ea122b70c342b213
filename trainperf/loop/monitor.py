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
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import Self

from trainperf.audit.chip_cache import note_chip
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.machine.clocks import HostClock, monotonic_ns, wall_clock_anchor
from trainperf.core.phases import Phase
from trainperf.core.steps.records import FINISHED, NOT_CLOSED
from trainperf.loop.finish import close_run
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.loop.start import LoopOptions, device_of, start
from trainperf.meters import Meter
from trainperf.recording.extensions import Extensions
from trainperf.recording.fit import PATIENCE
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.selection import Chosen, Objects
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.recording.sinks.base import Sink, Writer
from trainperf.trials import Trial, TrialOptions
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.start import MINUTES


log = logging.getLogger("trainperf")

T = TypeVar("T")

_CALLBACKS = int(Phase.CALLBACKS)
_NO_BATCH = object()

NEVER_ENDED = f"end_step() was not called in {PATIENCE} batches, so every batch counts as a step"
NO_BATCHES = (
    "no step was measured: end_step() was called, but no batch came through the monitor; iterate "
    "over monitor.batches(loader)"
)


class LoopMonitor:
    """Measures a training loop that you wrote yourself.  The fit begins when this is made.

    Args:
        dirpath: Directory under which the run directory is made; `None` writes none.
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
        writer: A `SummaryWriter` for the readings.
        log_every_n_steps: Steps between two points in the writer.
        report: Whether to print the report when the fit ends.
        lines: Whether to sample the lines that the training thread is in, for 0.1 % of the time.
        clock: Host clock; tests pass their own, which is not sampled.
        meters: Your own (`trainperf.meters.Meter`), in addition to the built-in ones.
        probes: Your own (`trainperf.recording.probes.base.Probe`), for facts of a step that your
            meters need.
        sinks: Your own (`trainperf.recording.sinks.base.Sink`): they get every step and reading.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    part = "start of the fit"

    def __init__(  # noqa: PLR0913 options that users name
        self,
        dirpath: str | Path | None = "runs",
        *,
        tokens: MaskFunction | None = None,
        writer: Writer | None = None,
        log_every_n_steps: int = 50,
        report: bool = True,
        lines: bool = True,
        clock: HostClock = monotonic_ns,
        meters: Sequence[Meter] = (),
        probes: Sequence[Probe] = (),
        sinks: Sequence[Sink] = (),
    ) -> None:
        if log_every_n_steps < 1:
            raise ConfigError(f"log_every_n_steps={log_every_n_steps}: must be at least 1; try 50")
        demand_mask(tokens)
        self.monitor = Monitor(clock)
        launch = LaunchOptions.of_this_process()
        trials = launch.trials if launch is not None else None
        if launch is not None and launch.trials is not None and launch.dirpath is not None:
            dirpath = launch.dirpath
        self._source: BatchSource | None = None
        self._objects = Objects(device=torch.device("cpu"), mask=tokens)
        self._options = LoopOptions(
            base=Path(dirpath) if dirpath is not None else None,
            writer=writer,
            log_every=log_every_n_steps,
            aloud=report,
            lines=lines and clock is monotonic_ns,
            started_at=wall_clock_anchor(),
            extensions=Extensions.of(meters=meters, sinks=sinks, probes=probes),
            trials=None if trials is None else TrialOptions(launch=trials, ends=True),
        )
        self.run: Path | None = None
        """The run directory, once the first epoch has begun."""
        self._rank = 0
        self._chosen = Chosen()
        self._brackets = PhaseContexts(self.monitor.recorder, self.monitor.guard, self._chosen)
        self._audit: AuditProbe | None = None
        self._batch: object = _NO_BATCH
        self._attempted: set[int] = set()
        self._ended, self._unended = False, 0
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    # -- before the first epoch ----------------------------------------------------------------

    def watch(
        self,
        model: torch.nn.Module,
        optimizers: Optimizer | Sequence[Optimizer] = (),
        scaler: torch.amp.GradScaler | None = None,
        device: torch.device | str | None = None,
        schedulers: LRScheduler | Sequence[LRScheduler] = (),
    ) -> Self:
        """Say what the loop trains, before the first epoch: names the run and finds its device.

        Args:
            model: The module as it is trained; wrapped in DDP, its all-reduce tail is measured.
            optimizers: Those under the scaler.
            scaler: Its overflows are counted around `phase("optimizer")`.
            device: Where the model is; by default its first parameter's device.
            schedulers: Their steps are counted.

        Raises:
            ConfigError: The first epoch has begun already.
        """
        self._demand_not_started("watch")
        self._objects = replace(
            self._objects,
            device=device_of(device, model),
            module=model,
            optimizers=[optimizers] if isinstance(optimizers, Optimizer) else list(optimizers),
            schedulers=[schedulers] if isinstance(schedulers, LRScheduler) else list(schedulers),
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
        self._options = replace(self._options, audit_at=at)
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
            ConfigError: The first epoch has begun already, or a trial is refused.
        """
        self._demand_not_started("trials")
        if self._options.trials is None:  # under `trainperf try` its options hold
            self._options = replace(self._options, trials=TrialOptions.of(own, minutes))
        else:
            self._options = replace(
                self._options, trials=replace(self._options.trials, own=tuple(own))
            )
        return self

    # -- the loop -----------------------------------------------------------------------------

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches, one epoch; the time each takes to come is data wait."""
        if not self._measures(loader):
            for batch in loader:  # `yield from` would close a loader that is a generator
                yield batch
            return
        fetch_begins, fetch_ends = self._brackets.fetch_begins, self._brackets.fetch_ends
        iterator = iter(loader)
        if self._source is not None:
            iterator = self._source.over(iterator)
        try:
            while True:
                if self._batch is not _NO_BATCH:
                    self._unended_batch()
                fetch_begins()
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                finally:
                    fetch_ends()
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
        """The optimizer was stepped: the step is complete.  With accumulation, once per group.

        Args:
            loss: The step's loss, a tensor of one element; copied, never waited for.
        """
        self._ended = True
        batch = self._batch
        if batch is _NO_BATCH:
            return
        if self._audit is not None:
            self._audit.pause()
        self._batch = _NO_BATCH
        if self._attempted:
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
        if self.run is not None and self._rank == 0:
            run, options, finished = self.run, self._options, reason == FINISHED
            ranks = self._objects.world_size if finished else 1
            close = partial(close_run, run, ranks=ranks, aloud=options.aloud, writer=options.writer)
            self.monitor.guard.run("chip", lambda: note_chip(run, measure=finished))
            self.monitor.guard.run("report", close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.close("interrupted" if issubclass(kind, KeyboardInterrupt) else kind.__name__)

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
        self._source = fit.source
        self._brackets = PhaseContexts(self.monitor.recorder, self.monitor.guard, self._chosen)

    def _unended_batch(self) -> None:
        """The loop went on without ending the step: more of its batches follow."""
        if self._audit is not None:
            self._audit.pause()
        complete = not self._ended and self._lose_patience()
        if not complete and self._chosen.scaler is not None:
            self.monitor.guard.run(self._chosen.scaler.name, self._chosen.scaler.withdraw)
        batch, self._batch = self._batch, _NO_BATCH
        self._attempted.clear()
        monitor = self.monitor
        monitor.recorder.enter(_CALLBACKS)
        monitor.micro_batch(batch, None, complete=complete)
        monitor.recorder.last_hook_left()

    def _lose_patience(self) -> bool:
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
        watched = self._objects.optimizers
        if optimizer is not None and not any(optimizer is other for other in watched):
            raise ConfigError(
                "phase('optimizer', optimizer): not one of those that watch() was given; name it "
                "there"
            )
        if optimizer is None and len(watched) != 1:
            raise ConfigError(
                f"phase('optimizer') under a scaler with {len(watched)} optimizers: say which, as "
                "in phase('optimizer', optimizer)"
            )
        stepped = optimizer or watched[0]
        if self._chosen.scaler is not None and id(stepped) not in self._attempted:
            self._attempted.add(id(stepped))  # zero_grad and update may have phases of their own
            self._chosen.scaler.attempt(stepped)

    def _notes(self) -> dict[str, str]:
        return {"step": NEVER_ENDED} if not self._ended and self._unended > PATIENCE else {}

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has inherited us
            self.close(NOT_CLOSED)
