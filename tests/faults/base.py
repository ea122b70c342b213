"""What is a fault script?  A training run with a known cause, and a twin without it.

A detector sees what the run recorded, never which script wrote it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import lightning.pytorch as pl
import torch
from support.fits import QUIET
from torch.utils.data import DataLoader

from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.lightning import TrainPerf


Kind = Literal["single", "healthy", "pairs", "near", "unseen", "fresh", "unchanged"]


class Train(Protocol):
    """Trains below a directory and leaves one run there."""

    def __call__(self, out: Path, *, fixed: bool) -> None:
        """With the fault, or *fixed*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script of the corpus, of which every module has one: see `script`."""

    expected: tuple[str, ...] = ()
    """Ids of the findings that must be ranked first, in any order among them; none is healthy."""
    train: Train
    same_work: bool = True
    """Whether the twin's gain can be measured: it does the same work in as many steps."""
    changes: tuple[str, ...] = ()
    """Ids of changes that the twin makes; of a cause without one here, the one that is advised."""
    own_process: bool = False
    """Whether it trains in a process of its own, where nothing can be changed for it."""


def script(*expected: str, **about: Any) -> Callable[[Train], Script]:
    """Makes a function that trains the script of its module."""
    return lambda train: Script(expected=expected, train=train, **about)


def script_in(module: ModuleType) -> Script:
    """The one that a module has."""
    (found,) = (each for each in vars(module).values() if isinstance(each, Script))
    return found


def train(
    out: Path,
    module: "pl.LightningModule",
    loader: Iterable[Any],
    *,
    audit_at: int | None = 12,
    **trainer: Any,
) -> None:
    """A quiet Lightning fit on the CPU with everything measured and one step audited."""
    measured = TrainPerf(dirpath=str(out), report=False, audit_at=audit_at)
    callbacks = [*trainer.pop("callbacks", []), measured]
    pl.Trainer(**{**QUIET, **trainer}, callbacks=callbacks).fit(module, loader)


def batches(number: int, *shape: int, size: int = 16) -> "DataLoader[Any]":
    """Random rows and labels of ten classes that cost nothing to load."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(number * size, *shape, generator=generator)
    labels = torch.randint(0, 10, (number * size,), generator=generator)
    return DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=size)


def ready(number: int, width: int, size: int = 256) -> "DataLoader[Any]":
    """The same rows and labels in every batch, made beforehand: waiting for them takes no time."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(size, width, generator=generator)
    batch = (rows, torch.randint(0, 10, (size,), generator=generator))
    whole: Any = [batch] * number
    return DataLoader(whole, batch_size=None)


def evidence_of(out: Path) -> Facts:
    """What the run below *out* shows."""
    return examine(Run.open(out))


def measured_gain(before: Summary, after: Summary, finding: Finding) -> float | None:
    """How many times faster the twin is, in what the finding's bound is about."""
    if finding.id == "padding":
        rates = [one.readings["effective_tokens_per_s"].value for one in (before, after)]
        return rates[1] / rates[0] if rates[0] and rates[1] else None
    if finding.scope == "fit":
        return before.run.fit_s / after.run.fit_s
    means = [one.readings["step_mean_s"].value for one in (before, after)]
    return means[0] / means[1] if means[0] and means[1] else None
