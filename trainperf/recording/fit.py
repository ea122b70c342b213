"""Start of a fit, the same for every loop: probes are chosen, sinks opened, the monitor started.

An adapter translates its loop into a `FitPlan`; it decides nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainperf.core import run_directory
from trainperf.core.machine.processes import this_process
from trainperf.core.steps.records import RunInfo, Scalar, Totals
from trainperf.meters import Measure
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity
from trainperf.recording.extensions import Extensions
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.interleaving import turns_probe
from trainperf.recording.probes.lines import LinesProbe
from trainperf.recording.probes.selection import EVERYTHING, Chosen, Objects, choose, meters_of
from trainperf.recording.sinks import default_sinks
from trainperf.recording.sinks.base import Outputs


PATIENCE = 64
"""Batches without an optimizer step from which on a batch is taken to be a step."""


def _no_names() -> dict[str, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPlan:
    """A loop that is about to be measured, as its adapter sees it."""

    objects: Objects
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
    probes: Callable[[Chosen], list[Probe]] = lambda _: []
    """Probes of the adapter, which may talk to the chosen ones."""
    trials: Callable[[Chosen], list[Probe]] = lambda _: []
    """The probe that takes the fit through its trials, if there are any."""
    reasons: Callable[[Chosen], dict[str, str]] = lambda _: {}
    """Why facts are missing, beyond what the choice of probes tells."""
    extensions: Extensions = field(default_factory=Extensions)
    software: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    """Steps, samples and tokens of earlier fits that this one continues."""
    continues: str = ""
    micro_batches: int = 1
    period: int = 0
    """Batches after which validation or an epoch comes back; 0 if that is not known."""
    first_answer: Callable[[dict[str, Reading]], None] | None = None


def start_fit(monitor: Monitor, plan: FitPlan) -> Chosen:
    """Choose the probes and start the monitor; model, optimizers and loaders exist."""
    chosen = choose(plan.objects, plan.measures)
    chosen.probes += [*plan.probes(chosen), *_sampler(plan), *plan.extensions.probes]
    info = _info(plan, chosen)
    # Last of all: what the others do as a step closes is part of the turn.
    turns = turns_probe(chosen.clock, info, plan.micro_batches, plan.period)

    def totals() -> Totals:
        lengths = chosen.tokens.histogram() if chosen.tokens else {}
        return Totals(
            at_step=0,
            actions_ns=plan.actions_ns(),
            sequence_lengths=dict(sorted(lengths.items())),
            notes=plan.notes(),
            config=chosen.config(monitor.guard),
        )

    monitor.start(
        RunParts(
            info=info,
            probes=[*chosen.probes, *plan.trials(chosen), *turns],
            sinks=[*default_sinks(plan.outputs), *plan.extensions.sinks],
            device=chosen.clock,
            log_every=plan.log_every,
            totals=totals,
            first_answer=plan.first_answer,
            meters=meters_of(plan.measures),
            own_meters=plan.extensions.meters,
        )
    )
    return chosen


def _sampler(plan: FitPlan) -> list[Probe]:
    run = plan.objects.run
    return [LinesProbe(run)] if plan.lines and run is not None else []


def _info(plan: FitPlan, chosen: Chosen) -> RunInfo:
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
        reasons={**chosen.reasons, **plan.reasons(chosen)},
        software={**run_identity.software(), **plan.software},
        hardware={**run_identity.hardware(device), "local_world_size": ranks},
        config=dict(plan.config),
        totals=dict(plan.totals),
        continues=plan.continues,
    )
