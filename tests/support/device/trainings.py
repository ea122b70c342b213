"""A full training through each door on the device, with all that a training may have.

A compiled model in half precision, batches copied ahead in a side stream, accumulation, validation
and checkpoints.  Each makes batches of four rows, two of them a step, on a device that is slower
than the host; it leaves a run directory where it is measured, and tells the scale that its
`GradScaler` ended with.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from support.device.frontend import NAME, PINNED
from support.device.lightning import on_device
from support.fits import Validated
from support.fits import trainer as lightning_trainer
from support.hugging_face import Rows, Tiny, quiet
from support.hugging_face import trainer as hugging_face_trainer
from support.loops import update
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer

from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor
from trainperf.remedies import DevicePrefetcher


STEPS = 40
INIT_SCALE = 2.0**24
"""Too large in half precision, so that the first updates overflow; in single none would."""
COMPILER = "aot_eager"
"""Traces and partitions as the default does, and runs the device's own operators."""


def scaler() -> torch.amp.GradScaler:
    """One that overflows at first, and then never grows."""
    return torch.amp.GradScaler(NAME, init_scale=INIT_SCALE, growth_interval=10**6)


def batches(rows: int) -> DataLoader[Any]:
    """Pinned, so that copies return at once."""
    labels = torch.arange(rows) % 2
    data = TensorDataset(torch.randn(rows, 4), labels)
    return DataLoader(data, batch_size=4, **PINNED)


def plain_loop(root: Path, *, measured: bool) -> float:
    """A loop of one's own."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(NAME)
    compiled = torch.compile(model, backend=COMPILER)
    optimizer, scale = torch.optim.AdamW(model.parameters(), fused=True), scaler()
    monitor = LoopMonitor(root, report=False)
    if measured:
        monitor.watch(model, optimizer, scale)
    for _ in range(2):
        loader = DevicePrefetcher(batches(4 * STEPS), NAME)
        for number, (rows, labels) in enumerate(monitor.batches(loader) if measured else loader):
            with monitor.phase("forward"), torch.autocast(NAME, dtype=torch.float16):
                loss = nn.functional.cross_entropy(compiled(rows), labels) / 2
            with monitor.phase("backward"):
                scale.scale(loss).backward()
            if number % 2:
                with monitor.phase("optimizer"):
                    update(optimizer, scale)
                monitor.end_step(loss)
        with monitor.phase("validation"), torch.no_grad():
            model(rows).sum().item()
        with monitor.phase("checkpoint"):
            torch.save(model.state_dict(), root / "weights.pt")
    monitor.close()
    return scale.get_scale()


class Classifier(Validated):
    """As small as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def loss(self, batch: Any) -> torch.Tensor:
        """Of its rows and labels."""
        rows, labels = batch
        return nn.functional.cross_entropy(self.layer(rows), labels)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log it."""
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> Any:
        """Fused, so that the scaler needs no value."""
        return torch.optim.AdamW(self.parameters(), fused=True)


def lightning(root: Path, *, measured: bool) -> float:
    """A Trainer with mixed precision, its module compiled as Lightning takes it: step by step."""
    scale = scaler()
    callbacks = [ModelCheckpoint(str(root / "weights"), every_n_train_steps=STEPS // 2)]
    own = [TrainPerf(report=False, dirpath=str(root))] if measured else []
    options = {
        **on_device(),
        "plugins": [MixedPrecision("16-mixed", NAME, scale)],
        "accumulate_grad_batches": 2,
        "max_epochs": 2,
        "enable_checkpointing": True,
    }
    trainer = lightning_trainer(root, *own, *callbacks, **options)
    model: Any = torch.compile(Classifier(), backend=COMPILER)
    trainer.fit(model, DevicePrefetcher(batches(4 * STEPS), NAME), batches(8))
    return scale.get_scale()


class Half(Tiny):
    """Computes in half precision by itself."""

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Under autocast."""
        with torch.autocast(NAME, dtype=torch.float16):
            return super().forward(x, attention_mask, labels)


class Ahead(DevicePrefetcher[Any]):
    """In the place of a loader, of which it has everything else."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Prefetching(Trainer):
    """Copies its batches ahead."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Within Accelerate's loader, which shares batches out and copies those that are not there.

        Around it the prefetcher would come too late.
        """
        loader = super().get_train_dataloader()
        loader.base_dataloader = Ahead(loader.base_dataloader, NAME)
        return loader


def hugging_face(root: Path, *, measured: bool) -> float:
    """A Trainer whose Accelerate is told of the device by its variable, and compiles the model.

    Accelerate takes `fp16=True` for the devices of a list of its own only and raises on any other.
    So the model's forward has the autocast, and the scaler is put in where Accelerate keeps its
    own; what it does with a scaler is the same.
    """
    trainer = hugging_face_trainer(
        root,
        *([quiet(dirpath=str(root))] if measured else []),
        model=Half(),
        kind=Prefetching,
        rows=Rows(4 * STEPS),
        evaluated=Rows(8),
        use_cpu=False,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        eval_strategy="steps",
        eval_steps=STEPS // 2,
        save_strategy="steps",
        save_steps=STEPS // 2,
        optim="adamw_torch_fused",
        torch_compile_backend=COMPILER,
    )
    trainer.accelerator.scaler = scaler()
    trainer.train()
    return trainer.accelerator.scaler.get_scale()


DOORS: dict[str, Callable[..., float]] = {
    "plain loop": plain_loop,
    "lightning": lightning,
    "hugging face": hugging_face,
}
