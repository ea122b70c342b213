"""The loop: each stage trains the same model on the same text, and leaves a run directory."""

import functools
import itertools
import logging
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill, indent

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader

from recipes.gpt2.batches import pack, pad
from recipes.gpt2.model import GPT2
from recipes.gpt2.stages import Preset, Settings, Stage
from recipes.gpt2.table import print_table
from recipes.gpt2.text import Documents, Place, find_documents, training_order
from trainperf.lightning import TrainPerf


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every stage of one walkthrough has in common."""

    preset: Preset
    steps: int
    seed: int
    text: Path | None
    """File or folder; `None` is the standard library."""
    out: Path
    accelerator: str = "auto"


def walkthrough(work: Work, stages: Sequence[Stage]) -> list[Path]:
    """Train each stage in turn, print its report and at the end the table; the run directories."""
    quieten()
    places = find_documents(work.text, work.preset)
    order = training_order(places, work.preset, work.steps, work.seed)
    print(describe(work, places, order))
    runs = []
    for stage in stages:
        print(f"\n{stage.name}: {stage.change}\n{indent(fill(stage.reason, 94), '  ')}", flush=True)
        runs.append(train(stage, work, order))
    print_table(list(zip(stages, runs, strict=True)), work.out)
    return runs


def train(stage: Stage, work: Work, order: list[Place]) -> Path:
    """Train one stage with trainperf attached; its run directory."""
    # Before the model is made: the same seed gives every stage the same random weights.
    L.seed_everything(work.seed, workers=True, verbose=False)
    model = GPT2(work.preset, stage.settings)
    folder = free_folder(work.out, stage.name)
    tensorboard = TensorBoardLogger(work.out, name="", version=folder.name)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator=work.accelerator,
        devices=1,
        logger=[tensorboard, CSVLogger(folder, name="csv", version="")],
        callbacks=[TrainPerf()],
        log_every_n_steps=10,
        # Nothing here is worth keeping, and a bar would draw over the report.
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    tensorboard.log_hyperparams({**asdict(work.preset), **asdict(stage.settings)})
    trainer.fit(model, loader(work.preset, stage.settings, order))
    return folder / "trainperf"


def free_folder(out: Path, name: str) -> Path:
    """Where a stage's run goes: `baseline`, or `baseline-1` when there is one already."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(1)))
    return next(out / free for free in names if not (out / free).exists())


def loader(preset: Preset, settings: Settings, order: list[Place]) -> DataLoader[list[int]]:
    """The documents of one step after the other, in an order that was fixed beforehand."""
    return DataLoader(
        Documents(order),
        batch_size=preset.documents,
        shuffle=False,
        collate_fn=functools.partial(pack, width=preset.context) if settings.packed else pad,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
    )


def describe(work: Work, places: list[Place], order: list[Place]) -> str:
    """What is about to be trained, as equations."""
    preset, tokens = work.preset, sum(place.tokens for place in order)
    return (
        f"GPT-2 {preset.name}: {preset.layers} layers × {preset.width} wide, {preset.heads} heads, "
        f"{preset.vocabulary:,} tokens in the vocabulary, context {preset.context}\n"
        f"text: {work.text or 'the Python standard library'}, {len(places):,} documents of "
        f"{min(place.tokens for place in places)} to {max(place.tokens for place in places)} tokens"
        f"\neach stage: {work.steps} steps × {preset.documents} documents = {tokens:,} tokens"
    )


def quieten() -> None:
    """Leave the terminal to the reports."""
    # Which accelerators exist, and that max_epochs was reached.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # Lightning 2.6 calls what torch 2.13 deprecates; there is nothing a reader could do.
    warnings.filterwarnings("ignore", message=".*treespec.*")
    # That a loader without workers may be slow is what the baseline's report says, with a number.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
