"""The way a module is spread over ranks, by its class and its parameters.

DDP, FSDP (`FullyShardedDataParallel`), FSDP2 (`fully_shard`), DeepSpeed's engine, tensor
parallelism (parameters that are `DTensor`), or none of these.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel


SHARDED = {
    "FullyShardedDataParallel": "FSDP",
    "FSDPModule": "FSDP2 (fully_shard)",
    "DeepSpeedEngine": "DeepSpeed",
}
"""Class of a wrapper that reduces gradients in a way of its own, to what people call it."""


def data_parallel(module: object) -> list[DistributedDataParallel]:
    """Every DDP wrapper: the module itself, one inside a compiled module, or several of its parts.

    A wrapper inside a wrapper is part of that.
    """
    if isinstance(module, DistributedDataParallel):
        return [module]
    children = module.children() if isinstance(module, nn.Module) else ()
    return list(dict.fromkeys(wrapper for child in children for wrapper in data_parallel(child)))


def not_covered(module: object, strategy: str) -> str:
    """Why there is no all-reduce tail on several ranks; *strategy* is the framework's own name."""
    names = ", ".join(filter(None, (strategy, sharding(module))))
    if not names:
        return (
            f"not covered: {type(module).__name__} is not DistributedDataParallel, and has none "
            "inside"
        )
    return (
        f"not covered: {names}; only DistributedDataParallel has a point at which the last "
        "gradient is ready. A capture (profiler) shows its exposed communication"
    )


def sharding(module: object) -> str | None:
    """What the module is spread with other than DDP; `None` for nothing of the kind."""
    if not isinstance(module, nn.Module):
        return None
    bases = (base.__name__ for part in module.modules() for base in type(part).__mro__)
    spread = any(type(parameter).__name__ == "DTensor" for parameter in module.parameters())
    parallel = "tensor parallelism (DTensor)" if spread else None
    return next((SHARDED[name] for name in bases if name in SHARDED), parallel)
