"""For a plain PyTorch loop: the same measurements, the same files, the same report.

Phases are told apart with `with monitor.phase("forward"): …`; what no phase brackets is `other`::

    monitor = LoopMonitor("runs/a")
    for batch in monitor.batches(loader):
        loss = train_on(batch)
        monitor.end_step(loss)
    monitor.close()
"""

import atexit
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from typing_extensions import Self

from trainperf import identity, rundir
from trainperf.brackets import Brackets
from trainperf.clocks.base import HostClock
from trainperf.clocks.host import monotonic_ns, wall_clock_anchor
from trainperf.closing import close_run
from trainperf.errors import ConfigError
from trainperf.measures import EVERYTHING
from trainperf.monitor import Monitor, Parts
from trainperf.phases import Phase
from trainperf.probes.choose import Chosen, Objects, choose
from trainperf.probes.marks import Mark
from trainperf.probes.tokens import MaskFunction
from trainperf.records import RunInfo, Totals
from trainperf.sinks.base import Sink
from trainperf.sinks.jsonl import JsonlSink
from trainperf.sinks.tensorboard import TensorBoardSink, Writer
from trainperf.timeline import PhaseBracket


log = logging.getLogger("trainperf")

T = TypeVar("T")

NO_DEVICE_COPY = 'not measured: put the copy into `with monitor.phase("h2d"):`'
NEVER_ENDED = "end_step() was not called in 64 batches, so every batch counts as a step"
PATIENCE = 64
"""Batches without `end_step` after which a batch is taken to be a step."""


class LoopMonitor:
    """Measures a training loop that you wrote yourself.  The fit begins when this is made.

    Args:
        dirpath: Directory under which the run directory is made; `None` writes none.
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
        writer: A `SummaryWriter` for the readings.
        log_every_n_steps: Steps between two points in the writer.
        clock: Host clock; tests pass their own.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    def __init__(
        self,
        dirpath: str | Path | None = "runs",
        *,
        tokens: MaskFunction | None = None,
        writer: Writer | None = None,
        log_every_n_steps: int = 50,
        clock: HostClock = monotonic_ns,
    ) -> None:
        if log_every_n_steps < 1:
            raise ConfigError(f"log_every_n_steps={log_every_n_steps}: must be at least 1; try 50")
        if tokens is not None and not callable(tokens):
            raise ConfigError(
                f"tokens={tokens!r}: must be a function from a batch to a mask; try "
                "tokens=lambda batch: batch['mask']"
            )
        self.monitor = Monitor(clock)
        self.run: Path | None = None
        """The run directory, once the first epoch has begun."""
        self._started_at = wall_clock_anchor()
        self._base = Path(dirpath) if dirpath is not None else None
        self._writer = writer
        self._log_every = log_every_n_steps
        self._objects = Objects(device=torch.device("cpu"), mask=tokens)
        self._model: torch.nn.Module | None = None
        self._rank = 0
        self._chosen = Chosen()
        self._brackets = Brackets(self.monitor.recorder, self.monitor.guard, self._chosen)
        self._batch: object = None
        self._pending = False
        self._batch_is_step = False
        atexit.register(self._at_exit)

    def watch(
        self,
        model: torch.nn.Module,
        optimizers: Optimizer | Sequence[Optimizer] = (),
        scaler: torch.amp.GradScaler | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Say what the loop trains, before the first epoch: names the run and finds its device.

        Args:
            model: The module as it is trained; wrapped in DDP, its all-reduce tail is measured.
            optimizers: Those under the scaler.
            scaler: Its overflows are counted around `phase("optimizer")`.
            device: Where the model is; by default its first parameter's device.
        """
        several = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
        self._model = model
        self._objects = replace(
            self._objects,
            device=_device(device, model),
            module=model,
            optimizers=several,
            scaler=scaler,
        )
        return self

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches, one epoch; the time each takes to come is data wait."""
        self._start(loader)
        recorder, mark = self.monitor.recorder, self._brackets.mark
        iterator = iter(loader)
        while True:
            self._end_micro_batch()
            recorder.boundary()
            mark(Mark.FETCH_BEGINS)
            recorder.enter(Phase.DATA_WAIT)
            try:
                batch = next(iterator)
            except StopIteration:
                break
            finally:
                recorder.leave()
                mark(Mark.FETCH_ENDS)
            self._batch, self._pending = batch, True
            yield batch
        recorder.epoch_ended()

    def phase(self, name: str, optimizer: Optimizer | None = None) -> AbstractContextManager[None]:
        """Everything inside belongs to a phase or gap; nested phases pause the outer one.

        Args:
            name: `h2d`, `forward`, `backward`, `optimizer`, `callbacks`; or a gap, which is cut
                out of the step: `validation`, `checkpoint`.
            optimizer: Which one is stepped, where a scaler serves several.

        Raises:
            ConfigError: There is no phase of that name.
        """
        if optimizer is not None or (self._chosen.scaler is not None and name == "optimizer"):
            self.monitor.guard.run("scaler", lambda: self._attempt(optimizer))
        return self._brackets.named(name)

    def end_step(self, loss: object = None) -> None:
        """The optimizer was stepped: the step is complete.  With accumulation, once per group.

        Args:
            loss: The step's loss, a tensor of one element; copied, never waited for.
        """
        self._end_micro_batch(loss, complete=True)

    def close(self, reason: str = "finished") -> None:
        """End the fit: close the files, write the summary, print the report on rank 0."""
        atexit.unregister(self._at_exit)
        if self.monitor.finished:
            return
        self._start(None)
        self._end_micro_batch()
        self.monitor.finish(reason)
        if self.run is not None and self._rank == 0:
            run, ranks = self.run, self._objects.world_size if reason == "finished" else 1
            self.monitor.guard.run("report", lambda: close_run(run, ranks=ranks, aloud=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.close("interrupted" if issubclass(kind, KeyboardInterrupt) else kind.__name__)

    def _start(self, loader: object) -> None:
        if self.monitor.started:
            return
        if dist.is_available() and dist.is_initialized():
            self._rank, self._objects.world_size = dist.get_rank(), dist.get_world_size()
        self._chosen = choose(self._objects, EVERYTHING)
        self._brackets = Brackets(self.monitor.recorder, self.monitor.guard, self._chosen)
        self._open_run()
        sinks: list[Sink] = []
        if self.run is not None:
            path = rundir.record_file(self.run, self._rank, rundir.attempt())
            sinks.append(JsonlSink(path))
        if self._writer is not None and self._rank == 0:
            sinks.append(TensorBoardSink(self._writer))
        self.monitor.start(
            Parts(
                info=self._info(loader),
                probes=self._chosen.probes,
                sinks=sinks,
                device=self._chosen.clock,
                log_every=self._log_every,
                totals=self._totals,
            )
        )

    def _end_micro_batch(self, loss: object = None, *, complete: bool = False) -> None:
        if not self._pending:
            return
        self._pending = False
        batch, self._batch = self._batch, None
        recorder = self.monitor.recorder
        draft = recorder.draft
        stuck = draft is not None and draft.index == 0 and draft.micro_batches >= PATIENCE
        if stuck and not complete and not self._batch_is_step:
            self._batch_is_step = True
            log.warning("trainperf: %s", NEVER_ENDED)
        with PhaseBracket(recorder, Phase.CALLBACKS):
            self.monitor.micro_batch(batch, loss, complete=complete or self._batch_is_step)
        recorder.last_hook_done()

    def _attempt(self, optimizer: Optimizer | None) -> None:
        known = self._objects.optimizers
        if optimizer is None and len(known) != 1:
            raise ConfigError(
                f"phase('optimizer') under a scaler with {len(known)} optimizers: say which, as "
                "in phase('optimizer', optimizer)"
            )
        if self._chosen.scaler is not None:
            self._chosen.scaler.attempt(optimizer or known[0])

    def _open_run(self) -> None:
        chosen: list[str | None] = [None]
        if self._base is not None and self._rank == 0:
            try:
                chosen = [str(rundir.choose(self._base))]
            except OSError as error:
                log.warning("trainperf: no run directory can be written (%s)", error)
        if self._objects.world_size > 1:
            dist.broadcast_object_list(chosen, src=0)
        self.run = Path(chosen[0]) if chosen[0] else None

    def _info(self, loader: object) -> RunInfo:
        device = self._objects.device
        reasons = dict(self._chosen.reasons)
        if self._chosen.marks is not None:
            reasons.setdefault("h2d_device_ns", NO_DEVICE_COPY)
        return RunInfo(
            started_at=self._started_at,
            rank=self._rank,
            world_size=self._objects.world_size,
            device=device.type,
            attempt=rundir.attempt(),
            reasons=reasons,
            software=identity.software(),
            hardware=identity.hardware(device),
            config={
                **(identity.model(self._model) if self._model is not None else {}),
                "loop": "plain",
                "optimizers": ", ".join(type(o).__name__ for o in self._objects.optimizers),
                "seed": torch.initial_seed(),
                **identity.loader(loader),
            },
        )

    def _totals(self) -> Totals:
        tokens = self._chosen.tokens
        return Totals(
            at_step=self.monitor.recorder.index,
            sequence_lengths=dict(sorted(tokens.lengths.items())) if tokens else {},
            notes={"step": NEVER_ENDED} if self._batch_is_step else {},
        )

    def _at_exit(self) -> None:
        self.close("not closed")


def _device(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    return first.device if first is not None else torch.device("cpu")
