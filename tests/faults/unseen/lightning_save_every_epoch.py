"""A checkpoint of a large model with its optimizer after each tiny epoch."""

from pathlib import Path

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


@script("checkpoint")
def _train(out: Path, *, fixed: bool) -> None:
    saver = ModelCheckpoint(out / "saved", every_n_epochs=10 if fixed else 1, save_top_k=-1)
    model = Classifier(perceptron(4, 1024), lambda own: torch.optim.AdamW(own, 1e-4, fused=True))
    train(
        out,
        model,
        ready(8, 1024, 16),
        callbacks=[saver],
        enable_checkpointing=True,
        max_epochs=10,
        audit_at=None,
    )
