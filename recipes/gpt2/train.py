"""One run: a model, its loader and a Trainer as the settings say, with trainperf attached."""

import functools
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader

from recipes.gpt2.batches import Batch, Document, pack, pad
from recipes.gpt2.habits import habits
from recipes.gpt2.model import GPT2
from recipes.gpt2.stages import Preset, Settings
from recipes.gpt2.text import DocumentDataset, DocumentSpan
from trainperf.lightning import ScheduledProfiler, TrainPerf


Also = Literal["", "trace", "trials"]
"""What else is done in a run: its last steps are traced, or changes are tried, which end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What every run of one walkthrough has in common."""

    preset: Preset
    steps: int
    seed: int
    text: Path | None
    """File or folder; `None` is the standard library."""
    out: Path
    accelerator: str = "auto"
    minutes: float = 6.0
    """The most that the runs take together."""
    trial_minutes: float = 0.0
    """Of trials once no finding is left; 0 for none."""
    model: type[GPT2] = GPT2


def train(
    work: Recipe,
    settings: Settings,
    order: list[DocumentSpan],
    name: str,
    *,
    profiled: bool,
    also: Also = "",
) -> Path:
    """Train once, from the same weights on the same documents as ever; the run directory.

    Args:
        work: What is trained.
        settings: How.
        order: The documents.
        name: Of the run's folder below that of the walkthrough.
        profiled: Audit one step, and on a GPU trace the last ones; neither counts in any
            statistic.
        also: What else is done in a profiled run.
    """
    # Before the model is made: the same seed gives every run the same random weights.
    L.seed_everything(work.seed, workers=True, verbose=False)
    model = work.model(work.preset, settings, labels_per_update(order, work.preset))
    folder = work.out / name
    tensorboard = TensorBoardLogger(work.out, name="", version=name, default_hp_metric=False)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator=work.accelerator,
        devices=1,
        # Lightning has names of its own for these literals.
        precision=settings.precision,  # type: ignore[arg-type]
        accumulate_grad_batches=settings.accumulation,
        logger=[tensorboard, CSVLogger(folder, name="csv", version="")],
        callbacks=[
            *habits(settings),
            *(observers(work, settings, order, also) if profiled else [TrainPerf(report=False)]),
        ],
        log_every_n_steps=settings.log_every,
        # Nothing here is worth keeping, and a bar would draw over the report.
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    tensorboard.log_hyperparams({**asdict(work.preset), **asdict(settings)})
    with products_in_tf32(allowed=settings.tf32):
        trainer.fit(model, loader(work.preset, settings, order))
    return folder / "trainperf"


def observers(
    work: Recipe, settings: Settings, order: list[DocumentSpan], also: Also
) -> list[Callback]:
    """TrainPerf with all that findings stand on, and perhaps a trace of the last steps.

    Where changes are tried nothing else is looked at.
    """
    if also == "trials":
        return [TrainPerf(report=False)]
    typical = typical_update(work.preset, settings, order)
    callbacks: list[Callback] = [TrainPerf(report=False, audit_at=typical)]
    if also == "trace" or torch.cuda.is_available():
        # At the end, so that no steady step comes after it.
        wait = max(1, work.steps - 8)
        callbacks.append(ScheduledProfiler(wait=wait, warmup=2, active=3, repeat=1))
    return callbacks


def typical_update(preset: Preset, settings: Settings, order: list[DocumentSpan]) -> int:
    """The update after the warm-up whose size is nearest to the mean.

    An audited step stands for all steps only if it is about as large.
    """
    make, rows = collate(preset, settings), preset.documents // settings.accumulation
    sizes: list[int] = []
    for first in range(0, len(order), preset.documents):
        update = [[0] * place.tokens for place in order[first : first + preset.documents]]
        parts = (update[start : start + rows] for start in range(0, len(update), rows))
        sizes.append(sum(make(part)["input_ids"].numel() for part in parts))
    middle = len(sizes) // 2
    # The last ones are traced where there is a GPU.
    first, last = min(20, middle), max(middle, len(sizes) - 12)
    mean = fmean(sizes[first:])
    return min(range(first, last + 1), key=lambda at: abs(sizes[at] - mean))


@contextmanager
def products_in_tf32(*, allowed: bool) -> Iterator[None]:
    """For one run: the switch belongs to the process."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def labels_per_update(order: list[DocumentSpan], preset: Preset) -> float:
    """Mean over the run; the first token of a document is no label."""
    updates = len(order) / preset.documents
    return sum(place.tokens - 1 for place in order) / updates


def loader(preset: Preset, settings: Settings, order: list[DocumentSpan]) -> DataLoader[list[int]]:
    """The documents of one micro-batch after the other, in an order that was fixed beforehand.

    Raises:
        ValueError: The documents of an update cannot be shared out evenly.
    """
    if preset.documents % settings.accumulation:
        raise ValueError(
            f"accumulation={settings.accumulation}: must divide the {preset.documents} documents "
            "of an update"
        )
    return DataLoader(
        DocumentDataset(order, cached=settings.cached),
        batch_size=preset.documents // settings.accumulation,
        shuffle=False,
        collate_fn=collate(preset, settings),
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
        pin_memory=settings.workers > 0 and torch.cuda.is_available(),
    )


def collate(preset: Preset, settings: Settings) -> Callable[[list[Document]], Batch]:
    """From the documents of a micro-batch to its tensors."""
    if settings.packed:
        return functools.partial(pack, width=preset.context)
    return functools.partial(pad, width=None if settings.trimmed else preset.context)


def free_folder(out: Path) -> Path:
    """Where a walkthrough goes: `gpt2-tiny`, or `gpt2-tiny-1` when there is one already."""
    return next(free for free in _numbered(out) if not free.exists())


def last_folder(out: Path) -> Path:
    """The folder that `--resume` continues: the last one that exists."""
    existing = itertools.takewhile(Path.exists, _numbered(out))
    return list(existing)[-1:][0] if out.exists() else out


def _numbered(out: Path) -> Iterator[Path]:
    yield out
    for number in itertools.count(1):
        yield out.with_name(f"{out.name}-{number}")


def quieten() -> None:
    """Leave the terminal to the walkthrough."""
    # Which accelerators exist, and that max_epochs was reached.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # Lightning 2.6 calls what torch 2.13 deprecates; there is nothing a reader could do.
    warnings.filterwarnings("ignore", message=".*treespec.*")
    # That a loader without workers may be slow is what the baseline's report says, with a number.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
