"""Loops over text that the overhead bench times: a GPT-2 as in the walkthrough, of fixed work."""

import gc
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from recipes.gpt2.batches import Batch, Document, pad
from recipes.gpt2.model import GPT2
from recipes.gpt2.stages import PRESETS, Settings
from scripts.bench.alternation import Stopwatch
from scripts.bench.checks import check
from scripts.bench.contenders import Contender, for_trainer


ROWS = 4
"""Documents of a batch: 15 ms a step on one core."""


class _Timed(GPT2):
    """The walkthrough's model with the stopwatch in its step."""

    watch: Stopwatch

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """As in the walkthrough."""
        self.watch.at(batch_idx)
        return super().training_step(batch, batch_idx)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLoop:
    """A `Trainer.fit` of GPT-2 with an attention mask and the Trainer's default logger."""

    name: str
    title: str
    longest: int
    """Tokens of the longest document; each batch is padded to its own longest."""
    unlike: bool
    """Whether documents of all lengths occur; else all batches are of one shape."""
    precision: str = "32-true"
    takes_turns: bool = True

    def contenders(self) -> list[Contender]:
        """Everything that can be attached to a Trainer with a logger."""
        return for_trainer(has_logger=True)

    def run(self, contender: Contender, watch: Stopwatch, scratch: Path) -> None:
        """One fit."""
        model = _Timed(PRESETS["tiny"], Settings(accumulation=1, attention="sdpa"))
        model.watch = watch
        trainer = pl.Trainer(
            callbacks=contender.callbacks(scratch),
            profiler=contender.profiler,
            max_epochs=1,
            accelerator="cpu",
            precision=self.precision,  # type: ignore[arg-type]
            default_root_dir=scratch,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        gc.collect()
        trainer.fit(model, self._loader(watch.needed))
        check(contender, scratch, watch.needed)

    def _loader(self, batches: int) -> "DataLoader[Document]":
        rng = np.random.default_rng(0)
        lengths = rng.integers(self.longest // 8, self.longest + 1, batches * ROWS)
        if not self.unlike:
            lengths[::ROWS] = self.longest
        documents = [rng.integers(0, 256, length).tolist() for length in lengths]
        return DataLoader(documents, batch_size=ROWS, collate_fn=pad)  # type: ignore[arg-type]


TEXT_LOOPS = (
    TextLoop(
        name="recipe",
        title="GPT-2 of the walkthrough: attention mask, the Trainer's default logger",
        longest=128,
        unlike=False,
    ),
    TextLoop(
        name="shapes",
        title="The same in bf16, each batch of another length",
        longest=128,
        unlike=True,
        precision="bf16-mixed",
    ),
)
