"""Settings of a fit that decide how fast a step can be, read once at its start.

Names of the facts in `RunInfo.config`, the same in every kind of loop.  What several objects have
(optimizers, parameter groups) is one value where they agree, and their values with commas where
they do not.  `None` is *not known*, or *has no such thing*.

| name | what it is |
|---|---|
| `optimizers` | class names |
| `optimizer_fused` | `True` or `False`; `None` for an optimizer that has no fused kernel |
| `optimizer_foreach` | `True`, `False`, or `auto`: torch decides, and takes it on an accelerator |
| `optimizer_device` | where the weights are that it updates: `cpu` beside a device is offloaded |
| `grad_scaler` | class name of an enabled one |
| `schedulers` | class names |
| `wrapper` | class of the parallel wrapper: `DistributedDataParallel`, `DataParallel`, … |
| `compiled` | whether the module, or one inside it, is compiled |
| `data_parallel_devices` | devices that one process drives under `DataParallel`; 0 on a CPU |
| `parameter_tensors` | number of tensors that are trained |
| `gradient_bytes` | their size in the types they have |
| `buffer_bytes` | size of its buffers, which DDP may send before every forward |
| `fsdp_reshard` | whether FSDP frees what it gathered for a forward before the backward |
| `ddp_bucket_cap_mb` | in MiB, as DDP counts |
| `ddp_find_unused_parameters`, `ddp_static_graph` | as DDP was told |
| `ddp_gradient_as_bucket_view`, `ddp_broadcast_buffers` | as DDP was told |
| `float32_matmul_precision` | `highest`, `high` or `medium` |
| `matmul_allow_tf32`, `cudnn_allow_tf32` | TF32 in products and in convolutions |
| `cudnn_benchmark`, `deterministic`, `detect_anomaly` | torch's own switches |
| `cudnn_deterministic` | whether convolutions on CUDA are to be the same each time |
| `python_tracer` | module that hears of every call or line of Python: a debugger, `cProfile`, … |
| `launch_blocking` | whether every kernel is waited for: `CUDA_LAUNCH_BLOCKING=1` |
| `autograd_profiler` | whether a profiler of the user's records when the fit begins |
| `convolution_format` | `channels_last` or `contiguous`: the weights of its convolutions |
| `attention` | how a Hugging Face model attends: `eager`, `sdpa`, … |
| `gradient_checkpointing` | whether a Hugging Face model recomputes activations |
| `vocabulary` | rows of the largest embedding |
| `datasets_cache` | why `datasets` has kept nothing of what it mapped; `None` if it may have |
| `dropout` | largest probability among its dropout modules; 0 without one |
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from trainperf.core.machine.surroundings import variables
from trainperf.core.steps.records import Scalar
from trainperf.recording.parallelism import SHARDED
from trainperf.recording.process_objects import is_compiled


_WRAPPERS = frozenset({"DistributedDataParallel", "DataParallel", *SHARDED})
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Dimensions of a convolution's weight to the format in which channels come last."""


def settings(module: object, optimizers: Sequence[Optimizer], scaler: object) -> dict[str, Scalar]:
    """All of them for a loop made of these; no device is waited for.

    Args:
        module: As it is trained: inside its wrapper, if it has one.
        optimizers: Those that step it.
        scaler: The GradScaler, if there is one.
    """
    enabled = isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()
    config = {
        **_optimizers(optimizers),
        "grad_scaler": names([scaler]) if enabled else None,
        **_switches(),
    }
    if isinstance(module, nn.Module):
        parts = list(module.modules())
        config.update({**_wrapper(parts), **_sizes(module), **_architecture(parts)})
    return config


def together(values: Iterable[Scalar]) -> Scalar:
    """One value where all are equal, else all of them as text; `None` for none."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        return ", ".join(map(str, different))
    return different[0] if different else None


def names(objects: Iterable[object]) -> str:
    """Class names, in their order; empty for none."""
    return ", ".join(type(item).__name__ for item in objects)


def _optimizers(optimizers: Sequence[Optimizer]) -> dict[str, Scalar]:
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {
        "optimizer_fused": together(_option(group, "fused", False) for group in groups),
        "optimizer_device": together(
            each.device.type
            for group in groups
            for each in group["params"]
            if isinstance(each, torch.Tensor)
        ),
        "optimizer_foreach": together(_option(group, "foreach", "auto") for group in groups),
    }


def _option(group: dict[str, object], option: str, default: Scalar) -> Scalar:
    if option not in group:
        return None
    return default if group[option] is None else bool(group[option])


def _switches() -> dict[str, Scalar]:
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "matmul_allow_tf32": _tf32(lambda: torch.backends.cuda.matmul.allow_tf32),
        "cudnn_allow_tf32": _tf32(lambda: torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "detect_anomaly": torch.is_anomaly_enabled(),
        "python_tracer": _tracer(),
        "datasets_cache": _uncached(),
        "launch_blocking": variables().get("CUDA_LAUNCH_BLOCKING") == "1",
        "autograd_profiler": torch.autograd._profiler_enabled(),  # type: ignore[attr-defined]  # noqa: SLF001 no public name
    }


def _uncached() -> str | None:
    fingerprints = sys.modules.get("datasets.fingerprint")
    if fingerprints is None:
        return None
    if not fingerprints.is_caching_enabled():
        return "caching is off"
    failed = getattr(fingerprints, "fingerprint_warnings", {})
    return "a function could not be hashed" if any(failed.values()) else None


def _tracer() -> str | None:
    """Module of a tool that this thread tells of all its Python code, or of most of it."""
    tools: list[object] = [sys.gettrace(), sys.getprofile()]
    if sys.version_info >= (3, 12):
        tools.append(sys.monitoring.get_tool(sys.monitoring.PROFILER_ID))
    heard = next((tool for tool in tools if tool is not None), None)
    if heard is None or isinstance(heard, str):
        return heard
    return str(getattr(heard, "__module__", None) or type(heard).__module__)


def _tf32(read: Callable[[], bool]) -> bool | None:
    with suppress(RuntimeError):  # the user has set it by the other of torch's two interfaces
        return bool(read())
    return None


def _wrapper(parts: Sequence[nn.Module]) -> dict[str, Scalar]:
    bases = (base.__name__ for part in parts for base in type(part).__mro__)
    ddp = next((part for part in parts if isinstance(part, DistributedDataParallel)), None)
    copied = next((part for part in parts if isinstance(part, DataParallel)), None)
    return {
        "wrapper": next((name for name in bases if name in _WRAPPERS), None),
        "compiled": any(map(is_compiled, parts)),
        **(
            {}
            if ddp is None
            else {
                "ddp_bucket_cap_mb": ddp.bucket_bytes_cap / 2**20,
                "ddp_find_unused_parameters": ddp.find_unused_parameters,
                "ddp_static_graph": ddp.static_graph,
                "ddp_gradient_as_bucket_view": ddp.gradient_as_bucket_view,
                "ddp_broadcast_buffers": ddp.broadcast_buffers,
            }
        ),
        **_fsdp(parts),
        **({} if copied is None else {"data_parallel_devices": len(copied.device_ids)}),
    }


def _fsdp(parts: Sequence[Any]) -> dict[str, Scalar]:
    """As FSDP was told for any part, by its strategy, or as FSDP2 keeps it; nothing without it."""
    strategies = [part.sharding_strategy for part in parts if hasattr(part, "sharding_strategy")]
    states = [part._get_fsdp_state() for part in parts if hasattr(part, "_get_fsdp_state")]  # noqa: SLF001 no public way
    groups = [group for state in states for group in _groups(state)]
    if not strategies and not groups:
        return {}
    whole = any(getattr(each, "name", "") in ("FULL_SHARD", "HYBRID_SHARD") for each in strategies)
    return {
        "fsdp_reshard": whole or any(group.post_forward_mesh_info is not None for group in groups)
    }


def _groups(state: Any) -> list[Any]:  # noqa: ANN401 torch's own
    """Parameters that FSDP2 gathers together; earlier versions of torch have one group a part."""
    earlier = getattr(state, "_fsdp_param_group", None)
    return getattr(state, "_fsdp_param_groups", [earlier] if earlier else [])


def _sizes(module: nn.Module) -> dict[str, Scalar]:
    trained = [p for p in module.parameters() if p.requires_grad]
    lazy = any(nn.parameter.is_lazy(p) for p in trained)
    return {
        "parameter_tensors": len(trained),
        "buffer_bytes": sum(
            b.numel() * b.element_size()
            for b in module.buffers()
            if not nn.parameter.is_lazy(b) and b.layout is torch.strided
        ),
        "gradient_bytes": None if lazy else sum(p.numel() * p.element_size() for p in trained),
    }


def _architecture(parts: Sequence[nn.Module]) -> dict[str, Scalar]:
    configs = (getattr(part, "config", None) for part in parts)
    attends = (getattr(config, "_attn_implementation", None) for config in configs)
    recomputes = [getattr(part, "gradient_checkpointing", None) for part in parts]
    checkpointing = [kind for kind in recomputes if isinstance(kind, bool)]
    dropping = [part.p for part in parts if isinstance(part, nn.modules.dropout._DropoutNd)]  # noqa: SLF001 the base of all of them
    rows = [part.num_embeddings for part in parts if isinstance(part, nn.Embedding)]
    return {
        "convolution_format": together(filter(None, map(_format, parts))),
        "attention": next((kind for kind in attends if isinstance(kind, str)), None),
        "gradient_checkpointing": any(checkpointing) if checkpointing else None,
        "vocabulary": max(rows, default=None),
        "dropout": max(dropping, default=0.0),
    }


def _format(part: nn.Module) -> str | None:
    weight = part.weight if isinstance(part, _CONVOLUTIONS) else None
    if weight is None or nn.parameter.is_lazy(weight) or weight.ndim not in _FORMATS:
        return None
    ordinary = weight.is_contiguous()
    last = weight.is_contiguous(memory_format=_FORMATS[weight.ndim])
    # A kernel of one pixel, or of one channel, is laid out both ways at once and says nothing.
    return None if ordinary == last else "channels_last" if last else "contiguous"
