"""Start of a fit, the same for every loop: probes are chosen, sinks opened, the monitor started.

An adapter translates its loop into a `FitPlan`; it decides nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist

from trainperf.core import run_directory
from trainperf.core.loop_kind import loop_of
from trainperf.core.machine.processes import this_process
from trainperf.core.steps.records import RunInfo, Scalar, Totals
from trainperf.meters import Measure
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity
from trainperf.recording.aggregation import AggregationSink, length
from trainperf.recording.extensions import Extensions
from trainperf.recording.guard import Guard
from trainperf.recording.machine.probe import is_first_of_host, machine_probe
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.interleaving import turns_probe
from trainperf.recording.probes.lines import LinesProbe
from trainperf.recording.probes.selection import (
    EVERYTHING,
    OF_TRAINING,
    FitObjects,
    ProbeSet,
    choose,
    inapplicable,
    meters_of,
)
from trainperf.recording.rank_group import RankGroup
from trainperf.recording.sinks import default_sinks
from trainperf.recording.sinks.base import Outputs, Sink


PATIENCE = 64
"""Batches without an optimizer step from which on a batch is taken to be a step."""


def _no_names() -> dict[str, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """A loop that is about to be measured, as its adapter sees it."""

    objects: FitObjects
    outputs: Outputs
    started_at: str
    config: Mapping[str, Scalar]
    log_every: int
    notes: Callable[[], dict[str, str]]
    """How numbers were obtained, as far as known now."""
    actions_ns: Callable[[], dict[str, int]] = _no_names
    """Exclusive host time of each user hook."""
    measures: frozenset[Measure] = EVERYTHING
    lines: bool = False
    """Whether the training thread is sampled, on the rank that writes what is looked at once."""
    probes: Callable[[ProbeSet], list[Probe]] = lambda _: []
    """Probes of the adapter, which may talk to the chosen ones."""
    trials: Callable[[ProbeSet], list[Probe]] = lambda _: []
    """The probe that takes the fit through its trials, if there are any."""
    reasons: Callable[[ProbeSet], dict[str, str]] = lambda _: {}
    """Why facts are missing, beyond what the choice of probes tells."""
    machine: bool = False
    """Whether the machine is sampled beside the loop, on the first rank of every host."""
    extensions: Extensions = field(default_factory=Extensions)
    software: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    """Steps, samples and tokens of earlier fits that this one continues."""
    continues: str = ""
    micro_batches: int = 1
    period: int = 0
    """Batches after which validation or an epoch comes back; 0 if that is not known."""
    first_answer: Callable[[dict[str, Reading]], None] | None = None


def start_fit(monitor: Monitor, plan: FitPlan) -> ProbeSet:
    """Choose the probes and start the monitor; model, optimizers and loaders exist."""
    trains = loop_of(plan.config).trains
    chosen = choose(plan.objects, plan.measures if trains else plan.measures - OF_TRAINING)
    chosen.probes += [*plan.probes(chosen), *_samplers(plan), *plan.extensions.probes]
    info = _info(plan, chosen)
    # Last of all: what the others do as a step closes is part of the turn.
    turns = turns_probe(chosen.clock, info, plan.micro_batches, plan.period)

    sinks = [*default_sinks(plan.outputs), *plan.extensions.sinks]
    shared = _aggregation(plan, sinks, monitor.guard)

    def totals() -> Totals:
        lengths = chosen.tokens.histogram() if chosen.tokens else {}
        waits = chosen.contention
        return Totals(
            at_step=0,
            actions_ns=plan.actions_ns(),
            threads_ns=waits.threads_ns() if waits else {},
            sequence_lengths=dict(sorted(lengths.items())),
            longest_tokens=chosen.tokens.longest_tokens if chosen.tokens else 0,
            notes={**plan.notes(), **(shared.notes() if shared else {})},
            config=chosen.config(monitor.guard),
            contention=(monitor.guard.run(waits.name, waits.totals) or {}) if waits else {},
        )

    monitor.start(
        RunParts(
            info=info,
            probes=[*chosen.probes, *plan.trials(chosen), *turns],
            sinks=[*sinks, shared] if shared else sinks,
            device=chosen.clock,
            log_every=plan.log_every,
            totals=totals,
            first_answer=plan.first_answer,
            meters=meters_of(plan.measures),
            own_meters=plan.extensions.meters,
        )
    )
    return chosen


def _aggregation(plan: FitPlan, sinks: Sequence[Sink], guard: Guard) -> AggregationSink | None:
    """Where several ranks of a process group were asked to; nobody is waited for."""
    ranks, rank = plan.objects.world_size, plan.outputs.rank
    grouped = dist.is_available() and dist.is_initialized() and dist.get_world_size() == ranks
    if not plan.extensions.aggregate or ranks == 1 or not grouped:
        return None
    meters = meters_of(plan.measures)
    group = RankGroup(rank, ranks, length(meters), guard)
    return AggregationSink(meters, sinks if rank == 0 else (), guard, group)


def _samplers(plan: FitPlan) -> list[Probe]:
    objects, outputs = plan.objects, plan.outputs
    lines = [LinesProbe(objects.run)] if plan.lines and objects.run is not None else []
    alone = objects.world_size == 1
    first = alone or is_first_of_host(outputs.rank)
    beside = plan.machine and first and outputs.run is not None
    return [*lines, *(machine_probe(outputs.run, outputs.rank, objects.device) if beside else [])]


def _info(plan: FitPlan, chosen: ProbeSet) -> RunInfo:
    objects = plan.objects
    device, world_size = objects.device, objects.world_size
    ranks = objects.local_world_size or run_identity.local_world_size(world_size)
    return RunInfo(
        started_at=plan.started_at,
        rank=plan.outputs.rank,
        world_size=world_size,
        device=device.type,
        attempt=run_directory.attempt(),
        process=this_process(),
        reasons={**chosen.reasons, **inapplicable(loop_of(plan.config)), **plan.reasons(chosen)},
        software={**run_identity.software(), **plan.software},
        hardware={**run_identity.hardware(device), "local_world_size": ranks},
        config=dict(plan.config),
        environment=run_identity.environment(rank=plan.outputs.rank),
        totals=dict(plan.totals),
        continues=plan.continues,
    )
