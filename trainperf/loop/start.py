"""What is a run of a plain loop made of?  Decided once, when its first epoch begins."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from trainperf.core import run_directory
from trainperf.core.interleaving import directory
from trainperf.core.loop_kind import PLAIN
from trainperf.core.steps.records import RunInfo, Scalar, Totals
from trainperf.loop.finish import close_run
from trainperf.loop.first_answer import first_answer
from trainperf.loop.shared_run import shared_run_directory
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity, run_settings
from trainperf.recording.guard import Guard
from trainperf.recording.measurements import EVERYTHING
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.interleaving import turns_probe
from trainperf.recording.probes.loader import LoaderProbe
from trainperf.recording.probes.loop_habits import ValidationProbe
from trainperf.recording.probes.plain_loop import PlainLoopProbe
from trainperf.recording.probes.selection import Chosen, Objects, choose
from trainperf.recording.profiling.options import Place, ScheduledProfile, trace_scalars
from trainperf.recording.run_parts import Parts
from trainperf.recording.sinks.base import Sink
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.recording.sinks.tensorboard import TensorBoardSink, Writer


NO_DEVICE_COPY = 'not measured: put the copy into `with monitor.phase("h2d"):`'


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user said when the monitor was made."""

    base: Path | None
    """Where the run directory is made; `None` makes none."""
    writer: Writer | None
    log_every: int
    aloud: bool
    """Whether anything is printed."""
    started_at: str
    profiler: ScheduledProfile | None = None
    """What is traced."""
    loader_anatomy: bool = False
    """Whether the loader is looked into."""
    audit_at: int | None = None
    """Number of the step that is audited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that is being measured."""

    run: Path | None
    rank: int
    chosen: Chosen
    audit: AuditProbe | None = None


def begin(
    monitor: Monitor,
    objects: Objects,
    wishes: Wishes,
    loader: object,
    notes: Callable[[], dict[str, str]],
) -> Begun:
    """Choose directory and probes, and start the monitor.

    On several ranks it takes a moment of each, and no collective: a rank may have no monitor.
    """
    rank = 0
    if dist.is_available() and dist.is_initialized():
        rank, objects.world_size = dist.get_rank(), dist.get_world_size()
    base = wishes.base and Path(directory() or wishes.base)
    run = shared_run_directory(base, rank, objects.world_size)
    objects.run = run if rank == 0 else None
    chosen = choose(objects, EVERYTHING)
    chosen.probes.append(PlainLoopProbe(objects.module, objects.device.type))
    if isinstance(objects.module, torch.nn.Module):
        chosen.probes.append(ValidationProbe(objects.module))
    if wishes.loader_anatomy and run is not None:
        chosen.probes.append(LoaderProbe(loader, objects.run))
    audit = _audit(objects, wishes, monitor.guard, chosen)
    traced = _traced(objects, wishes, run, rank, monitor.guard)
    say = partial(_say, written=run is not None)
    info = _info(objects, chosen, wishes, rank, loader)
    monitor.start(
        Parts(
            info=info,
            probes=[*chosen.probes, *traced, *turns_probe(chosen.clock, info)],
            sinks=_sinks(run, wishes, rank),
            device=chosen.clock,
            log_every=wishes.log_every,
            totals=lambda: _totals(chosen, notes(), monitor.guard),
            first_answer=say if wishes.aloud and rank == 0 else None,
        )
    )
    return Begun(run=run, rank=rank, chosen=chosen, audit=audit)


def end(run: Path, wishes: Wishes, ranks: int) -> None:
    """Write the summary of *ranks*, and show it where the user wished; see `close_run`."""
    close_run(run, ranks=ranks, aloud=wishes.aloud, writer=wishes.writer)


def device_of(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    """What the user said, else where the model's first parameter is."""
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def _audit(objects: Objects, wishes: Wishes, guard: Guard, chosen: Chosen) -> AuditProbe | None:
    if wishes.audit_at is None:
        return None
    module = objects.module if isinstance(objects.module, torch.nn.Module) else None
    audit = AuditProbe(module, wishes.audit_at, objects.run, guard)
    audit.ledger = chosen.ledger
    chosen.probes.append(audit)
    return audit


def _traced(
    objects: Objects, wishes: Wishes, run: Path | None, rank: int, guard: Guard
) -> list[Probe]:
    if wishes.profiler is None:
        return []
    writer = wishes.writer if rank == 0 else None
    place = Place(
        run=run,
        rank=rank,
        world_size=objects.world_size,
        device=objects.device.type,
        show=partial(_show, writer) if writer is not None else None,
    )
    probe = wishes.profiler.probe(place, guard)
    return [] if probe is None else [probe]


def _sinks(run: Path | None, wishes: Wishes, rank: int) -> list[Sink]:
    sinks: list[Sink] = []
    if run is not None:
        sinks.append(JsonlSink(run_directory.record_file(run, rank, run_directory.attempt())))
    if wishes.writer is not None and rank == 0:
        sinks.append(TensorBoardSink(wishes.writer))
    return sinks


def _info(objects: Objects, chosen: Chosen, wishes: Wishes, rank: int, loader: object) -> RunInfo:
    device, model = objects.device, objects.module
    reasons = dict(chosen.reasons)
    if chosen.marks is not None:
        reasons.setdefault("h2d_device_ns", NO_DEVICE_COPY)
    return RunInfo(
        started_at=wishes.started_at,
        rank=rank,
        world_size=objects.world_size,
        device=device.type,
        attempt=run_directory.attempt(),
        reasons=reasons,
        software=run_identity.software(),
        hardware=run_identity.hardware(device),
        config={
            **(_model(model) if isinstance(model, torch.nn.Module) else {}),
            "loop": PLAIN.name,
            "optimizers": run_settings.names(objects.optimizers),
            "schedulers": run_settings.names(objects.schedulers),
            **run_settings.settings(model, objects.optimizers, objects.scaler),
            "seed": torch.initial_seed(),
            **run_identity.loader(loader),
        },
    )


def _model(module: torch.nn.Module) -> dict[str, Scalar]:
    return {**run_identity.model(module), "precision": run_identity.precision(module)}


def _totals(chosen: Chosen, notes: dict[str, str], guard: Guard) -> Totals:
    tokens = chosen.tokens
    lengths = dict(sorted(tokens.lengths.items())) if tokens else {}
    config = chosen.config(guard)
    return Totals(at_step=0, sequence_lengths=lengths, notes=notes, config=config)


def _show(writer: Writer, step: int, figures: Mapping[str, float]) -> None:
    """Key figures of a trace, at the last of its steps."""
    for tag, value in trace_scalars(figures).items():
        writer.add_scalar(tag, value, step)


def _say(readings: dict[str, Reading], *, written: bool) -> None:
    said = first_answer(readings, written=written)
    if said is not None:
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
