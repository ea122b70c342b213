"""What is a run of a plain loop made of?  Decided once, when its first epoch begins."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from trainperf import identity, rundir
from trainperf.answer import first_answer
from trainperf.measures import EVERYTHING
from trainperf.meters.fold import Reading
from trainperf.monitor import Monitor, Parts
from trainperf.probes.choose import Chosen, Objects, choose
from trainperf.records import RunInfo, Totals
from trainperf.sinks.base import Sink
from trainperf.sinks.jsonl import JsonlSink
from trainperf.sinks.tensorboard import TensorBoardSink, Writer


log = logging.getLogger("trainperf")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that is being measured."""

    run: Path | None
    rank: int
    chosen: Chosen


def begin(
    monitor: Monitor,
    objects: Objects,
    wishes: Wishes,
    loader: object,
    notes: Callable[[], dict[str, str]],
) -> Begun:
    """Choose directory and probes, and start the monitor.  On several ranks a collective."""
    rank = 0
    if dist.is_available() and dist.is_initialized():
        rank, objects.world_size = dist.get_rank(), dist.get_world_size()
    chosen = choose(objects, EVERYTHING)
    run = _open_run(wishes.base, rank, objects.world_size)
    monitor.start(
        Parts(
            info=_info(objects, chosen, wishes, rank, loader),
            probes=chosen.probes,
            sinks=_sinks(run, wishes, rank),
            device=chosen.clock,
            log_every=wishes.log_every,
            totals=lambda: _totals(chosen, notes()),
            first_answer=_say if wishes.aloud and rank == 0 else None,
        )
    )
    return Begun(run=run, rank=rank, chosen=chosen)


def _open_run(base: Path | None, rank: int, ranks: int) -> Path | None:
    chosen: list[str | None] = [None]
    if base is not None and rank == 0:
        try:
            chosen = [str(rundir.choose(base))]
        except OSError as error:
            log.warning("trainperf: no run directory can be written (%s)", error)
    if ranks > 1:
        dist.broadcast_object_list(chosen, src=0)
    return Path(chosen[0]) if chosen[0] else None


def _sinks(run: Path | None, wishes: Wishes, rank: int) -> list[Sink]:
    sinks: list[Sink] = []
    if run is not None:
        sinks.append(JsonlSink(rundir.record_file(run, rank, rundir.attempt())))
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
        attempt=rundir.attempt(),
        reasons=reasons,
        software=identity.software(),
        hardware=identity.hardware(device),
        config={
            **(identity.model(model) if isinstance(model, torch.nn.Module) else {}),
            "loop": "plain",
            "optimizers": ", ".join(type(o).__name__ for o in objects.optimizers),
            "seed": torch.initial_seed(),
            **identity.loader(loader),
        },
    )


def _totals(chosen: Chosen, notes: dict[str, str]) -> Totals:
    tokens = chosen.tokens
    lengths = dict(sorted(tokens.lengths.items())) if tokens else {}
    return Totals(at_step=0, sequence_lengths=lengths, notes=notes)


def _say(readings: dict[str, Reading]) -> None:
    said = first_answer(readings)
    if said is not None:
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
