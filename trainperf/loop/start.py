"""Start of a plain loop's fit: its run directory is agreed upon, and its objects are handed on.

Ranks agree without a collective: a rank without a monitor would never enter it, and the others
would hang.  The store of the process group, which every backend has, keeps rank 0's answer until
it is asked for.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from trainperf.core import run_directory
from trainperf.core.interleaving import directory
from trainperf.core.loop_kind import PLAIN
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.steps.records import Scalar
from trainperf.loop.finish import first_answer
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity, run_settings
from trainperf.recording.extensions import Extensions
from trainperf.recording.fit import FitPlan, start_fit
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.loader import LoaderProbe
from trainperf.recording.probes.loop_habits import ValidationProbe
from trainperf.recording.probes.plain_loop import PlainLoopProbe
from trainperf.recording.probes.selection import Chosen, Objects
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile, trace_scalars
from trainperf.recording.sinks.base import Outputs, Writer
from trainperf.trials import TrialOptions
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.state import Stateful
from trainperf.trials.training import Training


log = logging.getLogger("trainperf")

NO_DEVICE_COPY = 'not measured: put the copy into `with monitor.phase("h2d"):`'

PATIENCE_NS = 30_000_000_000
"""How long another rank waits for rank 0's answer before it goes on alone."""

NONE = "-"
"""Rank 0's answer where it writes no run directory."""

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the user chose when the monitor was made, and before the first epoch."""

    base: Path | None
    """Where the run directory is made; `None` makes none."""
    writer: Writer | None
    log_every: int
    aloud: bool
    """Whether anything is printed."""
    lines: bool
    """Whether the training thread is sampled."""
    started_at: str
    extensions: Extensions = field(default_factory=Extensions)
    profiler: ScheduledProfile | None = None
    """What is traced."""
    loader_anatomy: bool = False
    """Whether the loader is looked into."""
    audit_at: int | None = None
    """Number of the step that is audited."""
    trials: TrialOptions | None = None
    """What is tried, if anything is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFit:
    """A fit that is being measured."""

    run: Path | None
    rank: int
    chosen: Chosen
    audit: AuditProbe | None = None
    source: BatchSource | None = None
    """Through which its batches come, where changes are tried."""


def start(
    monitor: Monitor,
    objects: Objects,
    options: LoopOptions,
    loader: object,
    notes: Callable[[], dict[str, str]],
) -> StartedFit:
    """Choose directory and probes, and start the monitor.

    On several ranks it takes a moment of each, and no collective: a rank may have no monitor.
    """
    rank = 0
    if dist.is_available() and dist.is_initialized():
        rank, objects.world_size = dist.get_rank(), dist.get_world_size()
    base = options.base and Path(directory() or options.base)
    run = shared_run_directory(base, rank, objects.world_size)
    objects.run = run if rank == 0 else None
    audit = _audit(objects, options, monitor)
    source = BatchSource(loader) if options.trials is not None else None
    outputs = Outputs(run=run, rank=rank, writer=options.writer)
    say = partial(_say, written=run is not None)

    def probes(chosen: Chosen) -> list[Probe]:
        own: list[Probe] = [PlainLoopProbe(objects.module, objects.device.type)]
        if isinstance(objects.module, torch.nn.Module):
            own.append(ValidationProbe(objects.module))
        if options.loader_anatomy and run is not None:
            own.append(LoaderProbe(loader, objects.run))
        if audit is not None:
            audit.ledger = chosen.ledger
            own.append(audit)
        return [*own, *_profiler(objects, options, outputs, monitor)]

    def trials(chosen: Chosen) -> list[Probe]:
        if options.trials is None or not isinstance(objects.module, torch.nn.Module):
            return []
        candidates = (*objects.schedulers, objects.scaler)
        others = [other for other in candidates if isinstance(other, Stateful)]
        training = Training(
            objects.module, objects.optimizers, objects.device, source, others=others
        )
        return [options.trials.probe(training, chosen.clock, objects.run, monitor.guard)]

    with _discarded_on_error(objects.run):
        chosen = start_fit(
            monitor,
            FitPlan(
                objects=objects,
                outputs=outputs,
                started_at=options.started_at,
                config=_configuration(objects, loader),
                log_every=options.log_every,
                lines=options.lines,
                notes=notes,
                probes=probes,
                trials=trials,
                reasons=lambda chosen: {"h2d_device_ns": NO_DEVICE_COPY} if chosen.marks else {},
                extensions=options.extensions,
                first_answer=say if options.aloud and rank == 0 else None,
            ),
        )
    return StartedFit(run=run, rank=rank, chosen=chosen, audit=audit, source=source)


@contextmanager
def _discarded_on_error(run: Path | None) -> Iterator[None]:
    """Leaves no empty run directory behind where the block raises."""
    with ExitStack() as undo:
        if run is not None:
            undo.callback(run_directory.discard_empty, run)
        yield
        undo.pop_all()


def device_of(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    """The device that the user named, else that of the model's first parameter."""
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def shared_run_directory(
    base: Path | None, rank: int, ranks: int, patience_ns: int = PATIENCE_NS
) -> Path | None:
    """The run directory of this rank: rank 0's, or one of its own if rank 0 publishes none.

    The k-th run of a rank shares the directory of rank 0's k-th run.
    """
    if ranks == 1:
        return _directory(base, run_directory.choose)
    try:
        return _shared(base, rank, patience_ns)
    except RuntimeError as error:  # the store is gone, e.g. with rank 0's process
        return _alone(base, rank, f"the process group's store failed ({error})")


def _shared(base: Path | None, rank: int, patience_ns: int) -> Path | None:
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 there is no public way
    number = store.add(f"trainperf/runs/{rank}", 1)
    key = f"trainperf/run/{number}"
    if rank == 0:
        run = _directory(base, run_directory.choose)
        store.set(key, str(run.resolve()) if run is not None else NONE)
        return run
    deadline = monotonic_ns() + patience_ns
    while not store.check([key]):
        if monotonic_ns() > deadline:
            waited_s = patience_ns // 1_000_000_000
            return _alone(base, rank, f"rank 0 has begun no run in {waited_s} seconds")
        time.sleep(_POLL_S)
    path = store.get(key).decode()
    if path == NONE:
        return None
    run = Path(path)
    if run_directory.has_ended(run_directory.record_file(run, 0, run_directory.attempt())):
        return _alone(base, rank, f"rank 0's run number {number} has ended already")
    return run


def _alone(base: Path | None, rank: int, why: str) -> Path | None:
    run = _directory(base, run_directory.create)
    if base is not None:
        log.warning(
            "trainperf: %s, so rank %s writes a run of its own (%s): make a LoopMonitor on every "
            "rank, as often on each",
            why,
            rank,
            run,
        )
    return run


def _directory(base: Path | None, make: Callable[[Path], Path]) -> Path | None:
    if base is None:
        return None
    try:
        return make(base)
    except OSError as error:
        log.warning(
            "trainperf: no run directory can be written (%s): nothing is recorded, and no report "
            "will come",
            error,
        )
        return None


def _audit(objects: Objects, options: LoopOptions, monitor: Monitor) -> AuditProbe | None:
    if options.audit_at is None:
        return None
    module = objects.module if isinstance(objects.module, torch.nn.Module) else None
    return AuditProbe(module, options.audit_at, objects.run, monitor.guard)


def _profiler(
    objects: Objects, options: LoopOptions, outputs: Outputs, monitor: Monitor
) -> list[Probe]:
    if options.profiler is None:
        return []
    writer = outputs.writer if outputs.rank == 0 else None
    place = CaptureRank(
        run=outputs.run,
        rank=outputs.rank,
        world_size=objects.world_size,
        device=objects.device.type,
        show=partial(_show, writer) if writer is not None else None,
    )
    probe = options.profiler.probe(place, monitor.guard)
    return [] if probe is None else [probe]


def _configuration(objects: Objects, loader: object) -> dict[str, Scalar]:
    model = objects.module
    of_model: dict[str, Scalar] = {}
    if isinstance(model, torch.nn.Module):
        of_model = {**run_identity.model(model), "precision": run_identity.precision(model)}
    return {
        **of_model,
        "loop": PLAIN.name,
        "optimizers": run_settings.names(objects.optimizers),
        "schedulers": run_settings.names(objects.schedulers),
        **run_settings.settings(model, objects.optimizers, objects.scaler),
        "seed": torch.initial_seed(),
        **run_identity.loader(loader),
    }


def _show(writer: Writer, step: int, figures: Mapping[str, float]) -> None:
    """Key figures of a trace, at the last of its steps."""
    for tag, value in trace_scalars(figures).items():
        writer.add_scalar(tag, value, step)


def _say(readings: dict[str, Reading], *, written: bool) -> None:
    sentence = first_answer(readings, written=written)
    if sentence is not None:
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()
