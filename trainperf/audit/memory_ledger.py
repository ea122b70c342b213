"""Ledger of device memory, counted from the tensors of a model and its optimizers.

from trainperf.audit.memory_ledger import memory_ledger

ledger = memory_ledger(model, optimizer, step=lambda: train_one_step(batch))
print(ledger.parameters_bytes, ledger.optimizer_bytes, ledger.activations_bytes)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainperf.accelerators import Ability, accelerator_of
from trainperf.audit.allocations import Allocations, MemoryUse, gradients, memory_use, storage_of
from trainperf.audit.nested import walker
from trainperf.audit.step import Audit
from trainperf.core.artifacts.memory import Category, MemoryLedger, ModuleActivations
from trainperf.core.machine.limits import memory_bytes


_tensors = walker(Tensor)

NO_STEP = "no step was audited"
NO_BACKWARD = "no backward ran in the audited step"
NO_ALLOCATOR = "not known here: operators take and free their workspace by themselves"
NO_CACHE = "not applicable: no caching allocator is known here"

_MASTER = "master"
"""Part of the name of an optimizer's state that is a copy of the parameter."""


def memory_ledger(
    model: nn.Module,
    optimizers: Optimizer | Sequence[Optimizer] = (),
    *,
    step: Callable[[], object] | None = None,
) -> MemoryLedger:
    """Count what *model* and *optimizers* hold; with *step*, run it once and count that too.

    A step does what it would have done: parameters are updated if it updates them.

    Args:
        model: As it is trained.
        optimizers: Those that step it.
        step: Forward, backward and update of one step, without arguments.
    """
    several = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    trained = Trained(model=model, optimizers=several, device=device)
    if step is None:
        return count(trained)
    audit = Audit(model)
    with audit:
        step()
    return with_step(count(trained), audit.allocations, storages(trained), device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What is counted."""

    model: nn.Module
    optimizers: Sequence[Optimizer] = ()
    device: torch.device
    precision: str = ""
    """As configured, e.g. `16-mixed`."""


def count(trained: Trained) -> MemoryLedger:
    """What exists regardless of the batch; runs nothing and waits for no device."""
    counted: set[int] = set()
    model, optimizers, device = trained.model, trained.optimizers, trained.device
    parameters = list(model.parameters())
    materialised = [p for p in parameters if not is_lazy(p)]
    return MemoryLedger(
        device=device.type,
        parameters_bytes=_bytes(materialised, counted),
        buffers_bytes=_bytes(model.buffers(), counted),
        gradients_bytes=_bytes(gradients(model), counted),
        master_bytes=_bytes(_masters(optimizers), counted),
        optimizer_state_bytes=_states(optimizers, counted),
        parameters=sum(p.numel() for p in materialised),
        trainable_parameters=sum(p.numel() for p in materialised if p.requires_grad),
        capacity_bytes=_capacity(device),
        precision=trained.precision,
        world_size=dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1,
        reasons=dict.fromkeys(("activations_bytes", "peak_bytes"), NO_STEP),
    )


def with_step(
    counted: MemoryLedger, allocations: Allocations, named: set[int], device: torch.device
) -> MemoryLedger:
    """*counted*, completed by the memory of the audited step.

    Args:
        counted: What exists regardless of the batch, counted after the step.
        allocations: Of the step.
        named: The storages that were counted.
        device: Where the model is.
    """
    timeline = allocations.timeline
    states = allocations.alive_among(named) - timeline.gradients
    use = memory_use(timeline, states)
    held = max(counted.gradients_bytes, use.gradients_bytes)
    ledger = msgspec.structs.replace(counted, gradients_bytes=held)
    at_peak: dict[Category, int] = {
        "parameters": ledger.parameters_bytes,
        "buffers": ledger.buffers_bytes,
        "master weights": ledger.master_bytes,
        "optimizer state": sum(ledger.optimizer_state_bytes.values())
        - sum(timeline.allocations[number].size_bytes for number in states),
    }
    for category, size in use.at_peak.items():
        at_peak[category] = at_peak.get(category, 0) + size
    modules = sorted(use.by_module.items(), key=lambda item: -item[1])
    return msgspec.structs.replace(
        ledger,
        activations_bytes=use.activations_bytes,
        activations=tuple(ModuleActivations(module=m, size_bytes=size) for m, size in modules),
        peak_bytes=sum(at_peak.values()),
        at_peak_bytes={name: size for name, size in at_peak.items() if size},
        reasons=_reasons(device, use),
        **_allocator(device, ledger.static_bytes + allocations.beyond_bytes(named)),
    )


def _reasons(device: torch.device, use: MemoryUse) -> dict[str, str]:
    backward = {} if use.activations_bytes is not None else {"activations_bytes": NO_BACKWARD}
    if Ability.STATISTICS not in accelerator_of(device).lacks():
        return backward
    return {**backward, "workspace_bytes": NO_ALLOCATOR, "fragmentation_bytes": NO_CACHE}


def storages(trained: Trained) -> set[int]:
    """Identities of all memory that `count` has a name for."""
    counted: set[int] = set()
    model, optimizers = trained.model, trained.optimizers
    states = (each for optimizer in optimizers for each in _tensors(optimizer.state))
    for tensors in (model.parameters(), model.buffers(), gradients(model), states):
        _bytes((tensor for tensor in tensors if not is_lazy(tensor)), counted)
    _bytes(_masters(optimizers), counted)
    return counted


def _bytes(tensors: Iterable[Tensor], counted: set[int]) -> int:
    """Size of the storages not counted before; adds them to *counted*."""
    total = 0
    for tensor in map(_local, tensors):
        if tensor.layout is not torch.strided:
            total += tensor.numel() * tensor.element_size()
        elif storage_of(tensor) not in counted:
            counted.add(storage_of(tensor))
            total += tensor.untyped_storage().nbytes()
    return total


def _local(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that is here."""
    local = getattr(tensor, "_local_tensor", None)
    return local if isinstance(local, Tensor) else tensor


def _masters(optimizers: Sequence[Optimizer]) -> Iterator[Tensor]:
    """Master weights: tensors that are stepped but are no parameters, and copies in the state.

    Parameters themselves are already counted where this is called.
    """
    for optimizer in optimizers:
        yield from (p for group in optimizer.param_groups for p in group["params"])
        for state in optimizer.state.values():
            yield from (tensor for name, tensor in _named(state) if _MASTER in name)


def _states(optimizers: Sequence[Optimizer], counted: set[int]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for name, tensor in _named(state):
                sizes[name] += _bytes([tensor], counted)
    return {name: size for name, size in sizes.items() if size}


def _named(state: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Mapping):
        for name, value in state.items():
            yield from ((str(name), tensor) for tensor in _tensors(value))


def _allocator(device: torch.device, counted_bytes: int) -> dict[str, int]:
    """What the caching allocator holds after the step beyond the counted tensors."""
    accelerator = accelerator_of(device)
    if Ability.STATISTICS in accelerator.lacks():
        return {}
    held = accelerator.memory_stats()
    allocated = held.get("allocated_bytes.all.current", 0)
    reserved = held.get("reserved_bytes.all.current", 0)
    return {
        "workspace_bytes": max(0, allocated - counted_bytes),
        "reserved_bytes": reserved,
        "fragmentation_bytes": reserved - allocated,
    }


def _capacity(device: torch.device) -> int | None:
    if device.type == "cpu":
        return memory_bytes()
    return accelerator_of(device).total_bytes()
