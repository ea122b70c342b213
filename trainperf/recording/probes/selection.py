"""Choice of the probes of a run: those requested that apply; every other fact gets a reason."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch.optim import Optimizer

from trainperf.audit.memory_ledger import Trained
from trainperf.core.loop_kind import NO_INFERENCE, NO_TRAINING, LoopKind
from trainperf.core.readings import (
    ALLREDUCE_SKEW_S,
    OPTIMIZER_STEPS_PER_S,
    PHASE_BACKWARD_S,
    PHASE_OPTIMIZER_S,
)
from trainperf.core.steps.records import Scalar
from trainperf.meters import METERS, Measure, Meter
from trainperf.recording.cuda_events import events_of
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.guard import Guard
from trainperf.recording.parallelism import data_parallel, not_covered
from trainperf.recording.probes.base import Probe, scalars
from trainperf.recording.probes.batches import SamplesProbe, TransferProbe
from trainperf.recording.probes.collectives import CollectivesProbe
from trainperf.recording.probes.compilation import CompileProbe
from trainperf.recording.probes.contention import ContentionProbe, countable
from trainperf.recording.probes.ddp import TailProbe
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.recording.probes.engine import EngineProbe, ScalingEngine
from trainperf.recording.probes.garbage_collector import GarbageProbe
from trainperf.recording.probes.loop_habits import ZeroGradProbe
from trainperf.recording.probes.loss import LossProbe
from trainperf.recording.probes.memory import DeviceMemoryProbe, ResidentMemoryProbe
from trainperf.recording.probes.memory_ledger import LedgerProbe
from trainperf.recording.probes.pace import WAITS, PaceProbe, ProcessorWaitProbe
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.probes.schedulers import SchedulersProbe
from trainperf.recording.probes.tokens import MaskFunction, TokensProbe


FACTS_OF: dict[Measure, tuple[str, ...]] = {
    Measure.STEP_TIME: ("gc_ns", "recompiles", *PaceProbe.facts, *ProcessorWaitProbe.facts),
    Measure.DATA_WAIT: ("data_stall_ns", "lead_forward", "lead_backward"),
    Measure.H2D: ("h2d_device_ns", "h2d_bytes", "h2d_tensors"),
    Measure.SCALER: ("attempts", "overflows", "loss_scale"),
    Measure.TOKENS: ("tokens_effective", "tokens_padded", "samples", "cache_keys"),
    Measure.TAIL: ("tail_ns",),
    Measure.MEMORY: (
        "allocated_bytes",
        "reserved_bytes",
        "peak_bytes",
        "reserved_peak_bytes",
        "alloc_retries",
        "alloc_failures",
        "resident_bytes",
        "owned_bytes",
    ),
    Measure.LOSS: ("loss",),
}
"""Facts whose probes cost the loop something, by the measurement that needs them."""

EVERYTHING = frozenset(Measure)

OF_TRAINING = frozenset({Measure.SCALER, Measure.TAIL, Measure.LOSS})
"""What only a loop that trains has."""

NOT_REQUESTED = "not requested: attach TrainPerf() for every measurement"
CPU_COPIES_NOTHING = "not applicable (CPU): the batch is not copied anywhere"
CPU_IN_STEP = "not applicable (CPU): host and device are the same"
ONE_RANK = "not applicable: one rank reduces nothing"


@dataclass(slots=True, kw_only=True)
class FitObjects:
    """What a loop is made of, as far as probes look at it."""

    device: torch.device
    module: object = None
    """The module as it is trained: wrapped in DDP, if it is."""
    optimizers: Sequence[Optimizer] = ()
    schedulers: Sequence[object] = ()
    scaler: object = None
    world_size: int = 1
    local_world_size: int | None = None
    """Ranks on this machine, where the loop knows better than the launcher's environment."""
    precision: str = "this loop"
    """What uses no GradScaler, if none is used."""
    strategy: str = ""
    """What the loop's framework calls its way of using several ranks; empty without one."""
    loss_scale: float = 1.0
    """Undoes a division of the loss that the loop has applied already."""
    loss_divided: bool = False
    """Whether the loop divides each loss by the micro-batches of its step."""
    mask: MaskFunction | None = None
    run: Path | None = None
    """Where what is looked at once is written; `None` on every rank but the first."""


@dataclass(slots=True)
class ProbeSet:
    """Probes for one run, the few that adapters must talk to, and why some facts have none."""

    probes: list[Probe] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    loss: LossProbe | None = None
    marks: MarksProbe | None = None
    scaler: ScalerProbe | None = None
    tail: TailProbe | None = None
    ledger: LedgerProbe | None = None
    tokens: TokensProbe | None = None
    contention: ContentionProbe | None = None
    clock: DeviceClock | None = None

    def without(self, facts: Iterable[str], reason: str) -> None:
        """Say why these facts are not measured; the first reason holds."""
        for fact in facts:
            self.reasons.setdefault(fact, reason)

    def config(self, guard: Guard) -> dict[str, Scalar]:
        """What the probes have learned of the run's configuration, each under its own guard."""
        config: dict[str, Scalar] = {}
        for probe in self.probes:
            config |= guard.run(probe.name, partial(scalars, probe.config)) or {}
        return config


def meters_of(measures: frozenset[Measure]) -> list[Meter]:
    """What is shown live where these measurements were requested."""
    return [meter for meter in METERS if meter.measure is None or meter.measure in measures]


def inapplicable(kind: LoopKind) -> dict[str, str]:
    """Facts and readings that a loop of this kind cannot have, each with the reason."""
    if kind.trains:
        return {"latency_ns": NO_INFERENCE}
    facts = (fact for measure in OF_TRAINING for fact in FACTS_OF[measure])
    readings = (meter.name for meter in METERS if meter.measure in OF_TRAINING)
    others = (PHASE_BACKWARD_S, PHASE_OPTIMIZER_S, OPTIMIZER_STEPS_PER_S, ALLREDUCE_SKEW_S)
    return dict.fromkeys((*facts, *readings, *others), NO_TRAINING)


def choose(objects: FitObjects, requested: frozenset[Measure]) -> ProbeSet:
    """The probes for what was requested and applies."""
    chosen = ProbeSet(clock=device_clock(objects.device))
    for measure in EVERYTHING - requested:
        readings = (meter.name for meter in METERS if meter.measure is measure)
        chosen.without((*FACTS_OF[measure], *readings), NOT_REQUESTED)
    facts = {fact for measure in requested for fact in FACTS_OF[measure]}
    if "loss" in facts:
        chosen.loss = LossProbe(
            scale=objects.loss_scale,
            divided=objects.loss_divided,
            asynchronous=objects.device.type != "cpu",
        )
        chosen.probes.append(chosen.loss)
    if "tokens_effective" in facts:
        chosen.tokens = TokensProbe(objects.mask)
        chosen.probes += [SamplesProbe(), chosen.tokens]
    if "gc_ns" in facts:
        chosen.probes += [GarbageProbe(), CompileProbe(objects.run)]
    if "gc_ns" in facts and countable():
        chosen.contention = ContentionProbe()
        chosen.probes.append(chosen.contention)
    if "gc_ns" in facts and objects.schedulers:
        chosen.probes.append(SchedulersProbe(objects.schedulers))
    if "gc_ns" in facts and objects.world_size > 1:
        chosen.probes.append(CollectivesProbe())
    _device(chosen, facts, objects)
    _scaler(chosen, facts, objects)
    _tail(chosen, facts, objects)
    _ledger(chosen, facts, objects)
    return chosen


def device_clock(device: torch.device) -> DeviceClock | None:
    """Timing events of an asynchronous device; `None` for a CPU."""
    if device.type != "cuda":
        return None
    return DeviceClock(events_of(device))


def _device(chosen: ProbeSet, facts: set[str], objects: FitObjects) -> None:
    clock, memory = chosen.clock, "peak_bytes" in facts
    if objects.device.type not in ("cpu", "cuda"):
        not_covered = f"not covered on {objects.device.type}: its copies and events are not known"
        everything = {fact for facts_of in FACTS_OF.values() for fact in facts_of}
        chosen.without(
            everything - {"gc_ns", "recompiles", *ResidentMemoryProbe.facts}, not_covered
        )
    if clock is None:
        chosen.probes += _machine(chosen) if "pace_ns" in facts else []
        chosen.without(FACTS_OF[Measure.H2D], CPU_COPIES_NOTHING)
        chosen.without(("lead_forward", "lead_backward"), CPU_IN_STEP)
        chosen.without(DeviceMemoryProbe.facts, "not applicable (CPU): see resident_peak_bytes")
        chosen.probes += [ResidentMemoryProbe()] if memory else []
        return
    chosen.without(ResidentMemoryProbe.facts, "not applicable: device memory is reported instead")
    host = (*PaceProbe.facts, *ProcessorWaitProbe.facts)
    chosen.without(host, "not applicable: the host's pace is not the device's")
    chosen.probes += [DeviceMemoryProbe(objects.device)] if memory else []
    chosen.probes += [TransferProbe()] if "h2d_bytes" in facts else []
    if facts & {*MarksProbe.facts, "tail_ns"}:
        chosen.marks = MarksProbe(clock)
        chosen.probes.append(chosen.marks)


def _machine(chosen: ProbeSet) -> list[Probe]:
    if WAITS.exists():
        return [PaceProbe(), ProcessorWaitProbe()]
    chosen.without(ProcessorWaitProbe.facts, "not measured: this system does not count it")
    return [PaceProbe()]


def _scaler(chosen: ProbeSet, facts: set[str], objects: FitObjects) -> None:
    scaler, engine = objects.scaler, objects.module
    if isinstance(engine, ScalingEngine) and engine.fp16_enabled():
        chosen.probes += [EngineProbe(engine)] if "overflows" in facts else []
    elif not isinstance(scaler, torch.amp.GradScaler) or not scaler.is_enabled():
        reason = f"not applicable: {objects.precision} uses no GradScaler"
        chosen.without(ScalerProbe.facts, reason)
    elif "overflows" in facts:
        chosen.scaler = ScalerProbe(scaler, objects.optimizers, objects.device)
        chosen.probes.append(chosen.scaler)


def _tail(chosen: ProbeSet, facts: set[str], objects: FitObjects) -> None:
    if objects.world_size == 1:
        chosen.without(TailProbe.facts, ONE_RANK)
        return
    modules = data_parallel(objects.module)
    if not modules:
        chosen.without(TailProbe.facts, not_covered(objects.module, objects.strategy))
    elif "tail_ns" in facts:
        chosen.tail = TailProbe(modules, _last_gradient(chosen.marks))
        chosen.probes.append(chosen.tail)


def _ledger(chosen: ProbeSet, facts: set[str], objects: FitObjects) -> None:
    module, optimizers = objects.module, objects.optimizers
    if "peak_bytes" not in facts or not isinstance(module, torch.nn.Module):
        return
    # DeepSpeed's is a wrapper without torch's hooks.
    if len(optimizers) == 1 and isinstance(optimizers[0], Optimizer):
        chosen.probes.append(ZeroGradProbe(optimizers[0]))
    if objects.run is not None:
        trained = Trained(
            model=module,
            optimizers=optimizers,
            device=objects.device,
            precision=objects.precision.removeprefix("precision "),
        )
        chosen.ledger = LedgerProbe(trained, objects.run)
        chosen.probes.append(chosen.ledger)


def _last_gradient(marks: MarksProbe | None) -> Callable[[], object] | None:
    return None if marks is None else lambda: marks.mark(Mark.LAST_GRADIENT)
