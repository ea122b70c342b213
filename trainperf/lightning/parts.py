"""What is a fit made of?  Reads a Trainer once, at its start: identity, probes, reasons."""

import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import lightning.pytorch as pl
import psutil
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import trainperf
from trainperf import measures
from trainperf.clocks.device import DeviceClock
from trainperf.lightning.boundaries import Boundaries
from trainperf.measures import Measure
from trainperf.probes.base import Probe
from trainperf.probes.batches import SamplesProbe, TransferProbe
from trainperf.probes.ddp import TailProbe
from trainperf.probes.loss import LossProbe
from trainperf.probes.marks import Mark, MarksProbe
from trainperf.probes.memory import DeviceMemoryProbe, ResidentMemoryProbe
from trainperf.probes.pauses import CompileProbe, GarbageProbe
from trainperf.probes.scaler import ScalerProbe
from trainperf.probes.tokens import MaskFunction, TokensProbe
from trainperf.records import RunInfo, Scalar


CPU_COPIES_NOTHING = "not applicable (CPU): the batch is not copied anywhere"
CPU_IN_STEP = "not applicable (CPU): host and device are the same"


@dataclass(slots=True)
class Found:
    """Probes for one fit, and why some facts have none."""

    probes: list[Probe]
    reasons: dict[str, str]
    scaler: ScalerProbe | None = None

    def add(self, asked: Iterable[str], probe: Probe) -> None:
        """Use a probe if any of its facts is asked for."""
        if set(probe.facts) & set(asked):
            self.probes.append(probe)

    def without(self, facts: Iterable[str], reason: str) -> None:
        """Say why these facts are not measured."""
        for fact in facts:
            self.reasons.setdefault(fact, reason)


def device_clock(device: torch.device) -> DeviceClock | None:
    """Timing events of an asynchronous device; `None` for a CPU."""
    if device.type != "cuda":
        return None
    return DeviceClock(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]


def find_probes(
    trainer: "pl.Trainer",
    asked: frozenset[Measure],
    mask: MaskFunction | None,
    boundaries: Boundaries,
    clock: DeviceClock | None,
) -> Found:
    """Probes for what was asked and applies to this trainer."""
    facts = {fact for measure in asked for fact in measure.facts}
    found = Found([], {})
    device = trainer.strategy.root_device
    found.add(facts, GarbageProbe())
    found.add(facts, CompileProbe())
    found.add(facts, SamplesProbe())
    found.add(facts, TokensProbe(mask))
    found.add(facts, LossProbe(scale=float(trainer.accumulate_grad_batches)))
    mark = _device(found, facts, device, boundaries, clock)
    _scaler(found, trainer, facts, device)
    _tail(found, trainer, facts, boundaries, mark)
    for measure in measures.EVERYTHING - asked:
        found.without((*measure.facts, *measure.readings), measures.NOT_ASKED)
    return found


def _device(
    found: Found,
    facts: set[str],
    device: torch.device,
    boundaries: Boundaries,
    clock: DeviceClock | None,
) -> Callable[[], object] | None:
    if clock is None:
        found.add(facts, ResidentMemoryProbe())
        found.without(measures.H2D.facts, CPU_COPIES_NOTHING)
        found.without(("lead_forward", "lead_backward"), CPU_IN_STEP)
        found.without(DeviceMemoryProbe.facts, "not applicable (CPU): see resident_peak_bytes")
        return None
    marks = MarksProbe(clock)
    found.add(facts, marks)
    found.add(facts, TransferProbe())
    found.add(facts, DeviceMemoryProbe(device))
    found.without(ResidentMemoryProbe.facts, "not applicable: device memory is reported instead")
    if marks in found.probes:
        boundaries.mark = marks.mark
    return lambda: marks.mark(Mark.LAST_GRADIENT)


def _scaler(found: Found, trainer: "pl.Trainer", facts: set[str], device: torch.device) -> None:
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if isinstance(scaler, torch.amp.GradScaler):
        found.scaler = ScalerProbe(scaler, trainer.optimizers, device)
        found.add(facts, found.scaler)
        return
    precision = str(trainer.precision)
    found.without(ScalerProbe.facts, f"not applicable: precision {precision} uses no GradScaler")


def _tail(
    found: Found,
    trainer: "pl.Trainer",
    facts: set[str],
    boundaries: Boundaries,
    mark: Callable[[], object] | None,
) -> None:
    if isinstance(trainer.model, DistributedDataParallel):
        probe = TailProbe(trainer.model, mark)
        found.add(facts, probe)
        boundaries.backward_listeners.append(probe)
    elif trainer.world_size == 1:
        found.without(TailProbe.facts, "not applicable: one rank reduces nothing")
    else:
        name = type(trainer.strategy).__name__
        found.without(TailProbe.facts, f"not covered: {name} is not DistributedDataParallel")


def run_info(trainer: "pl.Trainer", module: "pl.LightningModule", started_at: str) -> RunInfo:
    """Identity of the run, as comparisons will need it."""
    device = trainer.strategy.root_device
    return RunInfo(
        started_at=started_at,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        device=device.type,
        software={
            "trainperf": trainperf.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "lightning": str(pl.__version__),
        },
        hardware=hardware(device),
        config={**_configuration(trainer, module), **_loader(trainer)},
    )


def hardware(device: torch.device) -> dict[str, Scalar]:
    """The device and the host's size."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, properties.total_memory
    else:
        name, memory = platform.processor() or platform.machine(), psutil.virtual_memory().total
    return {
        "device_name": name,
        "device_memory_bytes": memory,
        "cpu_count": len(psutil.Process().cpu_affinity() or [])
        if sys.platform == "linux"
        else psutil.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _configuration(trainer: "pl.Trainer", module: "pl.LightningModule") -> dict[str, Scalar]:
    parameters = list(module.parameters())
    seed = torch.initial_seed()
    return {
        "loop": "lightning",
        "model": type(module).__qualname__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "precision": str(trainer.precision),
        "strategy": type(trainer.strategy).__name__,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "automatic_optimization": module.automatic_optimization,
        "optimizers": ", ".join(type(o).__name__ for o in trainer.optimizers),
        "seed": seed,
        "max_steps": trainer.max_steps,
        "max_epochs": trainer.max_epochs,
        "log_every_n_steps": trainer.log_every_n_steps,
    }


def _loader(trainer: "pl.Trainer") -> dict[str, Scalar]:
    loaders = trainer.train_dataloader
    loader = loaders if isinstance(loaders, DataLoader) else None
    for candidate in _flat(loaders) if loader is None else ():
        loader = candidate
        break
    return loader_config(loader)


def loader_config(loader: object) -> dict[str, Scalar]:
    """Settings of a `DataLoader` that decide how fast it can be."""
    if not isinstance(loader, DataLoader):
        return {"loader": type(loader).__name__}
    return {
        "loader": type(loader).__name__,
        "dataset": type(loader.dataset).__qualname__,
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }


def _flat(loaders: object) -> Iterable["DataLoader[object]"]:
    if isinstance(loaders, DataLoader):
        yield loaders
    elif isinstance(loaders, dict):
        for value in loaders.values():
            yield from _flat(value)
    elif isinstance(loaders, list | tuple):
        for value in loaders:
            yield from _flat(value)
