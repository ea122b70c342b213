"""Trainings of a Hugging Face `Trainer` that are small enough to be planted with anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support.loops import Written, read
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from trainperf.huggingface import TrainPerfCallback


TOKENS = 8
EFFECTIVE = 5
"""Of these many tokens of a row so many count: 37.5 % is padding."""


class Tiny(torch.nn.Module):
    """A model that does next to nothing, after what is planted."""

    def __init__(self, planted: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.planted = planted

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Loss and what it is made of."""
        del attention_mask
        if self.planted is not None and self.training:
            self.planted()
        out = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows with a mask; each is made after what is planted."""

    def __init__(self, number: int, planted: Callable[[], object] | None = None) -> None:
        self.number = number
        self.planted = planted

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        if self.planted is not None:
            self.planted()
        mask = torch.zeros(TOKENS, dtype=torch.int64)
        mask[:EFFECTIVE] = 1
        x = torch.full((4,), float(place % 3))
        return {"x": x, "attention_mask": mask, "labels": torch.tensor(place % 2)}


def trainer(
    path: Path,
    *callbacks: TrainerCallback,
    model: torch.nn.Module | None = None,
    rows: Any = None,
    kind: type[Trainer] = Trainer,
    evaluated: Any = None,
    **options: Any,
) -> Trainer:
    """A Trainer for a few steps of two rows each on the CPU."""
    torch.manual_seed(1)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "max_steps": 12,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_strategy": "no",
        "remove_unused_columns": False,
    }
    args = TrainingArguments(str(path / "out"), **{**settings, **options})
    return kind(
        model=model or Tiny(),
        args=args,
        train_dataset=rows or Rows(100),
        eval_dataset=evaluated,
        callbacks=list(callbacks),
    )


def quiet(**options: Any) -> TrainPerfCallback:
    """The callback without its report."""
    return TrainPerfCallback(**{"report": False, "lines": False, **options})


def written(callback: TrainPerfCallback) -> Written:
    """What a training has left."""
    return read(callback.run / "steps-rank0.jsonl")


def measured(path: Path, *callbacks: TrainerCallback, **options: Any) -> Written:
    """What is left of a training with our callback and these."""
    ours = quiet()
    trainer(path, ours, *callbacks, **options).train()
    return written(ours)
