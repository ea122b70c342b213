"""Choice of the probes of a run: those requested that apply; every other fact gets a reason."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from trainperf.accelerators import Ability, Accelerator, Host, accelerator_of
from trainperf.audit.memory_ledger import Trained
from trainperf.core.loop_kind import NO_INFERENCE, NO_TRAINING, LoopKind
from trainperf.core.readings import (
    ALLREDUCE_SKEW_S,
    OPTIMIZER_STEPS_PER_S,
    phase_reading,
)
from trainperf.meters import METERS, Measure
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.parallelism import data_parallel, not_covered
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.batches import SamplesProbe, TransferProbe
from trainperf.recording.probes.collectives import CollectivesProbe
from trainperf.recording.probes.compilation import CompileProbe
from trainperf.recording.probes.contention import ContentionProbe, countable
from trainperf.recording.probes.ddp import TailProbe
from trainperf.recording.probes.device_marks import Mark, MarksProbe
from trainperf.recording.probes.frozen import FrozenProbe
from trainperf.recording.probes.garbage_collector import GarbageProbe
from trainperf.recording.probes.loop_habits import ValidationProbe, ZeroGradProbe
from trainperf.recording.probes.loss import LossProbe
from trainperf.recording.probes.memory import (
    DeviceMemoryProbe,
    DeviceUseProbe,
    ResidentMemoryProbe,
)
from trainperf.recording.probes.memory_ledger import LedgerProbe
from trainperf.recording.probes.processor_wait import ProcessorWaitProbe
from trainperf.recording.probes.rank_inputs import RankInputsProbe
from trainperf.recording.probes.scaler import ScalerProbe
from trainperf.recording.probes.schedulers import SchedulersProbe
from trainperf.recording.probes.tokens import MaskFunction, TokensProbe


FACTS_OF: dict[Measure, tuple[str, ...]] = {
    Measure.STEP_TIME: ("gc_ns", "recompiles", *ProcessorWaitProbe.facts),
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
        "device_allocs",
        *DeviceUseProbe.facts,
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
CPU_MEMORY = "not applicable (CPU): see resident_peak_bytes"

ELSEWHERE: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "cpu": {
        FACTS_OF[Measure.H2D]: "not applicable (CPU): the batch is not copied anywhere",
        ("lead_forward", "lead_backward"): "not applicable (CPU): host and device are the same",
        DeviceMemoryProbe.facts: CPU_MEMORY,
        DeviceUseProbe.facts: CPU_MEMORY,
    },
    "device": {
        ProcessorWaitProbe.facts: "not applicable: a step waits for the device",
    },
}
"""What only the other kind of device has, and why."""

NEEDS: Mapping[Ability, tuple[str, ...]] = {
    Ability.EVENTS: (
        *FACTS_OF[Measure.DATA_WAIT],
        "h2d_device_ns",
        *FACTS_OF[Measure.SCALER],
        *FACTS_OF[Measure.TAIL],
        *FACTS_OF[Measure.LOSS],
        "tokens_effective",
        "tokens_padded",
    ),
    Ability.STATISTICS: DeviceMemoryProbe.facts,
    Ability.RETRIES: ("alloc_retries", "alloc_failures", "device_allocs"),
}
"""Facts that cannot be had where a device lacks something."""

AnyProbe = TypeVar("AnyProbe", bound=Probe)


@dataclass(slots=True, kw_only=True)
class FitObjects:
    """What a loop is made of, as far as probes look at it."""

    device: torch.device
    module: torch.nn.Module | None = None
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
    loss_scale: float | None = 1.0
    """Undoes a division of the loss that the loop has applied already; `None` where it divides by
    the micro-batches of the step."""
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
    accelerator: Accelerator = field(default_factory=Host)
    """The device of the fit."""
    lacks: Mapping[Ability, str] = field(default_factory=dict)
    """What it cannot tell, where it is one beside the host, with the reasons."""
    clock: DeviceClock | None = None
    """Its events; `None` where it has none, or needs none."""

    @property
    def reads(self) -> bool:
        """Whether values can be read from the device: it tells when they are written."""
        return Ability.EVENTS not in self.lacks

    def include(self, probe: AnyProbe) -> AnyProbe:
        """Have this probe in the run, too."""
        self.probes.append(probe)
        return probe

    def without(self, facts: Iterable[str], reason: str) -> None:
        """Say why these facts are not measured; the first reason holds."""
        self.reasons = {**dict.fromkeys(facts, reason), **self.reasons}


def inapplicable(kind: LoopKind) -> dict[str, str]:
    """Facts and readings that a loop of this kind cannot have, each with the reason."""
    if kind.trains:
        return {"latency_ns": NO_INFERENCE}
    lacking = (
        *(name for measure in OF_TRAINING for name in _names(measure)),
        *map(phase_reading, ("backward", "optimizer")),
        *(OPTIMIZER_STEPS_PER_S, ALLREDUCE_SKEW_S),
    )
    return dict.fromkeys(lacking, NO_TRAINING)


def _names(measure: Measure) -> tuple[str, ...]:
    """Facts that a measurement needs, and the readings that are made of them."""
    return (*FACTS_OF[measure], *(meter.name for meter in METERS if meter.measure is measure))


def choose(objects: FitObjects, requested: frozenset[Measure]) -> ProbeSet:
    """The probes for what was requested and applies."""
    accelerator = accelerator_of(objects.device)
    objects.device = accelerator.device
    chosen = ProbeSet(
        accelerator=accelerator, lacks=accelerator.lacks() if accelerator.asynchronous else {}
    )
    if accelerator.asynchronous and chosen.reads:
        chosen.clock = DeviceClock(accelerator)
    for measure in EVERYTHING - requested:
        chosen.without(_names(measure), NOT_REQUESTED)
    for facts, reason in ELSEWHERE["device" if accelerator.asynchronous else "cpu"].items():
        chosen.without(facts, reason)
    # Marks are read before the tail, which may take back what they tell.
    if chosen.clock is not None and requested & {Measure.DATA_WAIT, Measure.H2D, Measure.TAIL}:
        chosen.marks = chosen.include(MarksProbe(chosen.clock))
    for measure, include in PROBES_OF.items():
        if measure in requested:
            include(chosen, objects)
    for ability, reason in chosen.lacks.items():  # after what is not applicable anywhere
        chosen.without(NEEDS[ability], reason)
    return chosen


def _loss(chosen: ProbeSet, objects: FitObjects) -> None:
    if chosen.reads:
        chosen.loss = chosen.include(
            LossProbe(
                scale=objects.loss_scale,
                device=chosen.accelerator if chosen.accelerator.asynchronous else None,
            )
        )


def _tokens(chosen: ProbeSet, objects: FitObjects) -> None:
    chosen.include(SamplesProbe())
    if chosen.reads:
        chosen.tokens = chosen.include(TokensProbe(objects.mask))


def _step_time(chosen: ProbeSet, objects: FitObjects) -> None:
    chosen.probes += [GarbageProbe(), CompileProbe(objects.run)]
    validated = _validated(objects)
    if isinstance(validated, torch.nn.Module):
        chosen.include(ValidationProbe(validated))
    if countable():
        chosen.contention = chosen.include(ContentionProbe())
        if not chosen.accelerator.asynchronous:
            chosen.include(ProcessorWaitProbe())
    else:
        chosen.without(ProcessorWaitProbe.facts, "not measured: this system does not count it")
    if objects.schedulers:
        chosen.include(SchedulersProbe(objects.schedulers))
    held = [each for each in objects.optimizers if isinstance(each, Optimizer)]
    if held and objects.run is not None:
        chosen.include(FrozenProbe(held, chosen.accelerator))
    if objects.world_size > 1:
        chosen.include(CollectivesProbe(chosen.accelerator.type))
        wrappers = data_parallel(objects.module)
        # Ranks that hold different parts of a model are right to be given the same.
        if wrappers and all(each.process_group.size() == objects.world_size for each in wrappers):
            inside = [each.module for each in wrappers]
            chosen.include(RankInputsProbe(inside, chosen.accelerator))


def _validated(objects: FitObjects) -> object:
    """The module that every validation calls: the one inside DDP's wrapper, if there is one.

    Not where the loop's framework has wrapped it: that calls the wrapper, and the module's own step
    calls the module once more.
    """
    module = objects.module
    called = next(iter(module), None) if isinstance(module, torch.nn.ModuleList) else module
    if isinstance(called, DistributedDataParallel) and not objects.strategy:
        return called.module
    return called


def _transfer(chosen: ProbeSet, _: FitObjects) -> None:
    if not chosen.accelerator.unified:
        chosen.include(TransferProbe())
    elif chosen.accelerator.asynchronous:
        chosen.without(
            FACTS_OF[Measure.H2D],
            "not applicable: the device has the host's memory, so a batch crosses no link",
        )


def _scaler(chosen: ProbeSet, objects: FitObjects) -> None:
    scaler = objects.scaler
    if isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled():
        if chosen.reads:
            chosen.scaler = chosen.include(ScalerProbe(scaler, objects.optimizers, objects.device))
    else:
        reason = f"not applicable: {objects.precision} uses no GradScaler"
        if type(objects.module).__module__.startswith("deepspeed."):
            reason = "not measured: DeepSpeed scales a loss itself, and logs which steps it skipped"
        chosen.without(ScalerProbe.facts, reason)


def _tail(chosen: ProbeSet, objects: FitObjects) -> None:
    modules = data_parallel(objects.module)
    if objects.world_size == 1:
        chosen.without(TailProbe.facts, "not applicable: one rank reduces nothing")
    elif not modules:
        chosen.without(TailProbe.facts, not_covered(objects.module, objects.strategy))
    elif chosen.reads:
        mark = None if chosen.marks is None else partial(chosen.marks.mark, Mark.LAST_GRADIENT)
        chosen.tail = chosen.include(TailProbe(modules, mark))


def _memory(chosen: ProbeSet, objects: FitObjects) -> None:
    if not chosen.accelerator.asynchronous or Ability.STATISTICS in chosen.lacks:
        chosen.include(ResidentMemoryProbe())
    else:
        chosen.include(DeviceMemoryProbe(chosen.accelerator))
        chosen.without(
            ResidentMemoryProbe.facts, "not applicable: device memory is reported instead"
        )
    if chosen.accelerator.asynchronous:
        chosen.include(DeviceUseProbe(chosen.accelerator))
    module, optimizers = objects.module, objects.optimizers
    if not isinstance(module, torch.nn.Module):
        return
    # DeepSpeed's is a wrapper without torch's hooks.
    if len(optimizers) == 1 and isinstance(optimizers[0], Optimizer):
        chosen.include(ZeroGradProbe(optimizers[0]))
    if objects.run is not None:
        trained = Trained(
            model=module,
            optimizers=optimizers,
            device=objects.device,
            precision=objects.precision.removeprefix("precision "),
        )
        chosen.ledger = chosen.include(LedgerProbe(trained, objects.run))


PROBES_OF: Mapping[Measure, Callable[[ProbeSet, FitObjects], None]] = {
    Measure.LOSS: _loss,
    Measure.TOKENS: _tokens,
    Measure.STEP_TIME: _step_time,
    Measure.H2D: _transfer,
    Measure.SCALER: _scaler,
    Measure.TAIL: _tail,
    Measure.MEMORY: _memory,
}
"""Includes what a measurement needs and what applies, or says why it does not."""
