"""Ledger of device memory, counted from the tensors of a model and its optimizers.

from trainperf.audit.memory_ledger import memory_ledger

ledger = memory_ledger(model, optimizer, step=lambda: train_one_step(batch))
print(ledger.parameters_bytes, ledger.optimizer_bytes, ledger.activations_bytes)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from trainperf.accelerators import accelerator_of
from trainperf.audit.allocations import gradients, memory_of
from trainperf.audit.nested import walk
from trainperf.audit.step import Audit
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.machine.limits import memory_bytes


NO_STEP = "no step was audited"


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
    return audit.storages.complete(count(trained))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What is counted."""

    model: nn.Module
    optimizers: Sequence[Optimizer] = ()
    device: torch.device
    precision: str = ""
    """As configured, e.g. `16-mixed`."""


def count(trained: Trained, counted: set[int] | None = None) -> MemoryLedger:
    """What exists regardless of the batch; runs nothing and waits for no device.

    Args:
        trained: What is counted.
        counted: Gets the identities of all memory that has a name by now.
    """
    counted = set() if counted is None else counted
    model, device = trained.model, trained.device
    parameters = [p for p in model.parameters() if not is_lazy(p)]
    return MemoryLedger(
        device=device.type,
        parameters_bytes=_bytes(parameters, counted),
        buffers_bytes=_bytes(model.buffers(), counted),
        gradients_bytes=_bytes(gradients(model), counted),
        optimizer_state_bytes=_states(trained.optimizers, counted),
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        capacity_bytes=(
            memory_bytes() if device.type == "cpu" else accelerator_of(device).total_bytes()
        ),
        precision=trained.precision,
        world_size=dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1,
        reasons=dict.fromkeys(("activations_bytes", "peak_bytes"), NO_STEP),
    )


def storages(trained: Trained) -> set[int]:
    """Identities of all memory that `count` has a name for."""
    counted: set[int] = set()
    count(trained, counted)
    return counted


def _bytes(tensors: Iterable[Tensor], counted: set[int]) -> int:
    """Size of the storages not counted before; adds them to *counted*."""
    sizes = dict(map(memory_of, tensors))
    fresh = sizes.keys() - counted
    counted |= fresh
    return sum(sizes[identity] for identity in fresh)


def _states(optimizers: Sequence[Optimizer], counted: set[int]) -> dict[str, int]:
    """By kind; what is stepped but is no parameter of the model are its master weights."""
    sizes: Counter[str] = Counter()
    for optimizer in optimizers:
        stepped = (weight for group in optimizer.param_groups for weight in group["params"])
        sizes["master weights"] += _bytes(stepped, counted)
        for state in optimizer.state.values():
            for name, value in state.items() if isinstance(state, Mapping) else ():
                sizes[str(name)] += _bytes(walk(value, Tensor), counted)
    return {name: size for name, size in sizes.items() if size}
