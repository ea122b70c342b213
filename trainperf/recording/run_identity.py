"""Identity of a run: software, hardware, model and loader, as comparisons need them."""

import os
import platform
from collections import Counter

import torch
from torch.nn.parameter import is_lazy

import trainperf
from trainperf.audit.loader.probe_loader import loaders
from trainperf.core.machine.limits import cpu_count, host_cpus, memory_bytes
from trainperf.core.steps.records import Scalar


def software() -> dict[str, str]:
    """Versions of what a number can depend on."""
    return {
        "trainperf": trainperf.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def hardware(device: torch.device) -> dict[str, Scalar]:
    """The device, and the host's size: as this process may use it, and of all its CPUs."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, properties.total_memory
    else:
        name, memory = _processor(), memory_bytes()
    return {
        "device_name": name,
        "device_memory_bytes": memory,
        "cpu_count": cpu_count(),
        "host_cpus": host_cpus(),
        "threads": torch.get_num_threads(),
    }


def local_world_size(world_size: int) -> int | None:
    """Ranks on this machine, as the launcher says; `None` where it does not."""
    if world_size == 1:
        return 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(ranks) if ranks.isdigit() else None


def model(module: torch.nn.Module) -> dict[str, Scalar]:
    """Class and size of a model."""
    parameters = list(module.parameters())
    # Lazy modules learn their size in the first forward, which is still to come.
    unknown = any(is_lazy(p) for p in parameters)
    return {
        "model": type(module).__qualname__,
        "parameters": None if unknown else sum(p.numel() for p in parameters),
        "trainable_parameters": None
        if unknown
        else sum(p.numel() for p in parameters if p.requires_grad),
    }


def precision(module: torch.nn.Module) -> str | None:
    """Types of the floating-point parameters, most elements first; `None` without any."""
    elements: Counter[str] = Counter()
    for parameter in module.parameters():
        if parameter.is_floating_point():
            lazy = is_lazy(parameter)
            elements[type_name(parameter.dtype)] += 0 if lazy else parameter.numel()
    return ", ".join(name for name, _ in elements.most_common()) or None


def type_name(dtype: torch.dtype) -> str:
    """E.g. `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def loader(source: object) -> dict[str, Scalar]:
    """Settings of the first `DataLoader` in *source* that decide how fast it can be."""
    first = next(loaders(source), None)
    if first is None:
        return {"loader": type(source).__name__}
    return {
        "loader": type(first).__name__,
        "dataset": type(first.dataset).__qualname__,
        "batch_size": first.batch_size,
        "num_workers": first.num_workers,
        "pin_memory": bool(first.pin_memory),
        "prefetch_factor": first.prefetch_factor,
        "persistent_workers": first.persistent_workers,
    }


def _processor() -> str:
    return platform.processor() or platform.machine()
