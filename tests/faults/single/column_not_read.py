"""Samples have a depth map, which takes most of their making, and no step reads it."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from faults.base import script
from faults.loads import ROWS, STEPS, WIDTH, Nap, Paced, loader
from trainperf.loop import LoopMonitor


class Scenes(Dataset[dict[str, Tensor]]):
    """Pictures, with a depth map where that is wanted."""

    def __init__(self, *, depth: bool) -> None:
        self._depth = depth
        self._picture, self._map = Nap(100e-6), Nap(300e-6)

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        scene = {"image": self.image(index), "label": torch.tensor(index % 10)}
        if self._depth:
            scene["depth"] = self.depth(index)
        return scene

    def image(self, index: int) -> Tensor:
        """A picture."""
        self._picture()
        return torch.full((WIDTH,), index / ROWS)

    def depth(self, index: int) -> Tensor:
        """Its depth map."""
        self._map()
        return torch.zeros(WIDTH)


@script("unread_fields", changes=("leave_out_fields",))
def _train(out: Path, *, fixed: bool) -> None:
    model = Paced()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    monitor = LoopMonitor(out, report=False, audit_at=12).watch(model, optimizer)
    with monitor:
        for batch in monitor.batches(loader(Scenes(depth=not fixed))):
            given = {name: field.clone() for name, field in batch.items()}
            with monitor.phase("forward"):
                loss = functional.cross_entropy(model(given["image"]), given["label"])
            with monitor.phase("backward"):
                optimizer.zero_grad()
                loss.backward()
            with monitor.phase("optimizer"):
                optimizer.step()
            monitor.end_step(loss)
