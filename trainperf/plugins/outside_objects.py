"""Parts of a loop, looked for from outside: its parameters, loader, schedulers and scaler.

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
    return [
        parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]


def loader_in_use() -> object | None:
    """The loader of the training, if that is certain: the only one, or the only one in use.

    Where there is none, an iterator of a library that has its own ways to make batches.
    """
    loaders = list(living(DataLoader))
    if not loaders:
        iterators = (each for each in living(object) if hasattr(type(each), "__next__"))
        return next(filter(library_of, iterators), None)
    read = {id(iterator._dataset) for iterator in living(_BaseDataLoaderIter)}  # noqa: SLF001 it names its loader nowhere else
    in_use = [loader for loader in loaders if id(loader.dataset) in read] or loaders
    return in_use[0] if len({id(loader.dataset) for loader in in_use}) == 1 else None


def schedulers_of(optimizers: Sequence[Optimizer]) -> list[LRScheduler]:
    """Those that set the optimizers' learning rates."""
    return [s for s in living(LRScheduler) if getattr(s, "optimizer", None) in optimizers]


def scaler_of(optimizer: Optimizer) -> torch.amp.GradScaler | None:
    """The GradScaler that steps the optimizer now; it remembers it until its `update()`."""
    scalers = (
        scaler
        for scaler in living(torch.amp.GradScaler)
        if scaler.is_enabled() and id(optimizer) in scaler._per_optimizer_states  # noqa: SLF001 it names them nowhere else
    )
    return next(scalers, None)


def fabric_precision(module: nn.Module | None) -> dict[str, Scalar]:
    """Mixed precision of a module that Fabric has set up: it enters that by itself."""
    strategy = getattr(module, "_strategy", None)
    precision = getattr(getattr(strategy, "precision", None), "precision", None)
    return {} if precision is None else {"precision": str(precision)}
