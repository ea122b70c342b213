"""Scripts of the corpus, edited as a trial's line says, without touching their files, and proven.

`prove` has to judge the very change that a trial measured: the edit is made from outside, where
the script makes its Trainer, its loader or its optimizer.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import lightning.pytorch as pl
import msgspec
import torch
from torch import nn
from torch.utils.data import DataLoader

from scripts.bench.harness import installed
from trainperf.comparison.results import Comparison
from trainperf.loop import LoopMonitor
from trainperf.trials.training import outermost_layers


T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]

TIMES = 4
"""A fit is so many times as long as its script says: most have 40 to 60 steps."""

PAIRS = 3
"""At most."""

LONGEST_S = 90
"""Of one proof: after so long it is interrupted, and says what it knows."""

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


@contextmanager
def longer() -> Iterator[None]:
    """Fits are `TIMES` as long, on one thread."""
    init, batches = pl.Trainer.__init__, LoopMonitor.batches

    def more(self: pl.Trainer, *, max_epochs: int = 1, **options: object) -> None:
        init(self, max_epochs=TIMES * max_epochs, **options)  # type: ignore[arg-type]

    def again(self: LoopMonitor, loader: Iterable[T]) -> Iterator[T]:
        return batches(self, chain.from_iterable(repeat(loader, TIMES)))

    torch.set_num_threads(1)  # as the tests do: two threads on shared cores wait for each other
    with ExitStack() as stack:
        stack.enter_context(patch.object(pl.Trainer, "__init__", more))
        stack.enter_context(patch.object(LoopMonitor, "batches", again))
        yield


def compared(before: str, after: str, out: Path) -> Comparison | str:
    """What `prove` says of two commands, below *out*; else why it says nothing."""
    command = [sys.executable, "-m", "trainperf", "prove", before, after]
    command += ["--pairs", str(PAIRS), "--format", "json", "--out", str(out)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return _ended(command, {**installed(), "PYTHONPATH": paths})


def _ended(command: Sequence[str], environment: Mapping[str, str]) -> Comparison | str:
    """What `prove` says, after `LONGEST_S` by the pairs there are; else why it says nothing."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    if process.returncode:
        return (err.decode().strip().splitlines() or ["nothing"])[-1]
    (comparison,) = msgspec.json.decode(out, type=tuple[Comparison])
    return comparison


def mean_step_gain(comparison: Comparison) -> tuple[float, float, float] | None:
    """Of the mean steady step, with its interval."""
    mean = next((each for each in comparison.readings if each.name == "step_mean_s"), None)
    if mean is None or not mean.ratio or not mean.low or not mean.high:
        return None
    return 1 / mean.ratio, 1 / mean.high, 1 / mean.low
