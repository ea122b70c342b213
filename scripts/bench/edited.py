"""Scripts of the corpus, edited as a trial's line says, without touching their files.

`prove` has to judge the very change that a trial measured: the edit is made from outside, where
the script makes its Trainer, its loader or its optimizer.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from trainperf.loop import LoopMonitor
from trainperf.trials.training import outermost_layers


AS_TWIN = {"logging_many": "logging_interval", "padding_mixed": "sorted_batches"}
"""Scripts whose fixed twin does what a trial does."""

_WORKERS = re.compile(r"workers_(\d+)(?:_threads_(\d+))?")
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def can_edit(script: str, trial: str) -> bool:
    """Whether there is an edit of that script for it."""
    general = trial in ("autocast_bf16", "optimizer_fused", "compile")
    return general or AS_TWIN.get(script) == trial or bool(_WORKERS.fullmatch(trial))


@contextmanager
def edited(trial: str) -> Iterator[None]:
    """Whatever is made in it is made as the trial's line says; nothing changes for a twin's."""
    with ExitStack() as stack:
        staffed = _WORKERS.fullmatch(trial)
        if staffed:
            workers, threads = staffed.groups()
            stack.enter_context(
                _making(DataLoader, num_workers=int(workers), persistent_workers=True)
            )
            torch.set_num_threads(int(threads or torch.get_num_threads()))
        elif trial == "autocast_bf16":
            stack.enter_context(_making(pl.Trainer, precision="bf16-mixed"))
            stack.enter_context(_watching(_under_autocast))
        elif trial == "optimizer_fused":
            for kind in _OPTIMIZERS:
                stack.enter_context(_making(kind, fused=True, foreach=None))
        elif trial == "compile":
            stack.enter_context(patch.object(pl.Trainer, "fit", _compiling(pl.Trainer.fit)))
            stack.enter_context(_watching(nn.Module.compile))
        yield


def _making(kind: type, **options: object) -> AbstractContextManager[object]:
    """Objects of that kind are made with these options, whatever the script says."""
    init = kind.__init__  # type: ignore[misc] # as it is called

    def with_options(self: object, *args: object, **others: object) -> None:
        init(self, *args, **{**others, **options})

    return patch.object(kind, "__init__", with_options)


def _watching(change: Callable[[nn.Module], object]) -> AbstractContextManager[object]:
    """In a plain loop, the model is changed as soon as it is watched."""
    watch = LoopMonitor.watch

    def changed(self: LoopMonitor, model: nn.Module, *args: object) -> LoopMonitor:
        change(model)
        return watch(self, model, *args)  # type: ignore[arg-type] # as it is called

    return patch.object(LoopMonitor, "watch", changed)


def _under_autocast(model: nn.Module) -> None:
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)


def _compiling(fit: Callable[..., None]) -> Callable[..., None]:
    def compiled(self: pl.Trainer, model: pl.LightningModule, *args: object) -> None:
        for part in outermost_layers(model):
            part.compile()
        fit(self, model, *args)

    return compiled
