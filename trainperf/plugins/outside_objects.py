"""Parts of a loop, looked for from outside: its modules, loader, schedulers and scaler.

An optimizer knows its parameters and nothing else, so the rest is searched for among all objects of
the process.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainperf.core.steps.records import Scalar
from trainperf.recording.process_objects import living
from trainperf.recording.run_identity import library_of


def updated_by(optimizers: Sequence[Optimizer]) -> list[torch.Tensor]:
    """Their parameters."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return [parameter for group in groups for parameter in group["params"]]


def trained_modules(optimizers: Sequence[Optimizer]) -> list[nn.Module]:
    """The outermost modules with a parameter that is updated, wrappers such as DDP included.

    Where none has (an optimizer with copies of its own), the largest that is trained.
    """
    updated = {id(parameter) for parameter in updated_by(optimizers)}
    modules = list(living(nn.Module))
    inside = {id(child) for module in modules for child in module.children()}
    outermost = [module for module in modules if id(module) not in inside]
    holders = [m for m in outermost if any(id(p) in updated for p in m.parameters())]
    return holders or sorted(outermost, key=_trainable, reverse=True)[:1]


def loader_in_use() -> object | None:
    """The loader of the training, if that is certain: the only one, or the only one in use.

    Where there is none, an iterator of a library that has its own ways to make batches.
    """
    loaders = list(living(DataLoader))
    datasets = {id(loader.dataset) for loader in loaders}
    if len(datasets) > 1:
        datasets &= {id(iterator._dataset) for iterator in living(_BaseDataLoaderIter)}  # noqa: SLF001 it names its loader nowhere else
    if not loaders:
        iterators = (each for each in living(object) if hasattr(type(each), "__next__"))
        return next(filter(library_of, iterators), None)
    used = [loader for loader in loaders if id(loader.dataset) in datasets]
    return used[0] if len(datasets) == 1 else None


def schedulers_of(optimizers: Sequence[Optimizer]) -> list[LRScheduler]:
    """Those that set the optimizers' learning rates."""
    ids = {id(optimizer) for optimizer in optimizers}
    return [s for s in living(LRScheduler) if id(getattr(s, "optimizer", None)) in ids]


def scaler_of(optimizer: Optimizer) -> torch.amp.GradScaler | None:
    """The GradScaler that steps the optimizer now; it remembers it until its `update()`."""
    scalers = (scaler for scaler in living(torch.amp.GradScaler) if scaler.is_enabled())
    return next((s for s in scalers if id(optimizer) in s._per_optimizer_states), None)  # noqa: SLF001 it names them nowhere else


def fabric_precision(module: nn.Module) -> dict[str, Scalar]:
    """Mixed precision of a module that Fabric has set up: it enters that by itself."""
    strategy = getattr(module, "_strategy", None)
    precision = getattr(getattr(strategy, "precision", None), "precision", None)
    return {} if precision is None else {"precision": str(precision)}


def _trainable(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
