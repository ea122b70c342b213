"""Fits of one rank of several, for `scripts.bench.late`: ranks that sleep where a plan says.

Every process trains all fits of the plan, one after the other, under Lightning or in a plain loop,
on gloo.  All ranks sleep in every forward, as if a device computed, or multiply; a planted sleep
comes on top.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from scripts.bench.harness import quiet
from scripts.bench.planted import At, PlantedSamples
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor


LIGHTNING = ("loader", "batch start", "forward", "backward", "optimizer", "batch end")
"""Where a rank can sleep under Lightning."""
PLAIN = ("loader", "h2d", "forward", "backward", "optimizer", "callbacks")
"""Where it can in a plain loop."""
MEETINGS = ("forward", "optimizer", "batch end", "callbacks")
"""Where the ranks can be made to meet a second time: a logged metric, a norm, a barrier."""

Act = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFit:
    """What to train: one fit of all ranks."""

    name: str
    loop: str
    """`lightning` or `plain`."""
    steps: int
    base_s: float
    """Every rank sleeps so long in every forward, or multiplies about so long."""
    products: int = 0
    """How many matrices every rank multiplies in every forward; 0 where it sleeps."""
    sleeps: tuple[tuple[int, str, float], ...] = ()
    """Rank, place, seconds."""
    rotating: bool = False
    """Whether the planted sleep moves to the next rank after every step."""
    meeting: str = ""
    """Where the ranks meet in addition; empty for nowhere."""


def work_matrix() -> torch.Tensor:
    """What is multiplied with itself: it stays in a core's own cache."""
    return torch.ones(128, 128)


class _Planted:
    """What one rank does at each place of its step."""

    def __init__(self, fit: PlannedFit, rank: int, ranks: int) -> None:
        self._fit, self._rank, self._ranks = fit, rank, ranks
        self._norm = torch.ones(1)
        self._matrix = work_matrix()
        self._step = 0

    def at(self, place: str) -> None:
        """The place is reached."""
        turn = self._step % self._ranks if self._fit.rotating else None
        if place == "loader":
            self._step += 1
        for rank, where, seconds in self._fit.sleeps:
            if where == place and self._rank == (rank if turn is None else turn):
                time.sleep(seconds)
        if place == "forward":
            self._work()

    def _work(self) -> None:
        if not self._fit.products:
            time.sleep(self._fit.base_s)
        for _ in range(self._fit.products):
            self._matrix @ self._matrix

    def meet(self, place: str) -> None:
        """Wait for the others, if the plan says so: what a norm over shards does."""
        if self._fit.meeting == place:
            dist.all_reduce(self._norm)


class _Module(pl.LightningModule):
    def __init__(self, planted: _Planted, *, logs: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self._planted, self._logs = planted, logs

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """A loss that depends on every parameter."""
        del batch_idx
        loss: torch.Tensor = self.layer(batch).pow(2).mean()
        self._planted.at("forward")
        if self._logs:
            self.log("loss", loss, sync_dist=True)
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Lightning's, and what is planted before the gradients meet."""
        self._planted.at("backward")
        loss.backward()  # type: ignore[no-untyped-call]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD, and what is planted after its step."""
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
        optimizer.register_step_post_hook(lambda *_: self._stepped())
        return optimizer

    def _stepped(self) -> None:
        self._planted.meet("optimizer")
        self._planted.at("optimizer")


def _lightning(fit: PlannedFit, base: Path, rank: int, ranks: int) -> None:
    planted = _Planted(fit, rank, ranks)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            At("on_train_batch_start", partial(planted.at, "batch start")),
            At("on_train_batch_end", partial(planted.meet, "batch end")),
            At("on_train_batch_end", partial(planted.at, "batch end")),
            TrainPerf(dirpath=str(base), report=False),
        ],
        default_root_dir=base,
    )
    samples = PlantedSamples(fit.steps * ranks, partial(planted.at, "loader"))
    trainer.fit(_Module(planted, logs=fit.meeting == "forward"), DataLoader(samples))


def _plain(fit: PlannedFit, base: Path, rank: int, ranks: int) -> None:
    planted = _Planted(fit, rank, ranks)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    samples = PlantedSamples(fit.steps, partial(planted.at, "loader"))
    with LoopMonitor(base, report=False).watch(model, optimizer) as monitor:
        for batch in monitor.batches(DataLoader(samples)):
            with monitor.phase("h2d"):
                planted.at("h2d")
            with monitor.phase("forward"):
                loss = model(batch).pow(2).mean()
                planted.at("forward")
                planted.meet("forward")
            with monitor.phase("backward"):
                planted.at("backward")
                loss.backward()
            with monitor.phase("optimizer"):
                planted.meet("optimizer")
                optimizer.step()
                optimizer.zero_grad()
                planted.at("optimizer")
            with monitor.phase("callbacks"):
                planted.meet("callbacks")
                planted.at("callbacks")
            monitor.end_step(loss)


def train(plan: Sequence[PlannedFit], base: Path, rank: int, ranks: int) -> None:
    """All fits of the plan, each below a directory of its name."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    loops: Mapping[str, Callable[[PlannedFit, Path, int, int], None]] = {
        "lightning": _lightning,
        "plain": _plain,
    }
    for fit in plan:
        dist.barrier()
        with quiet():
            loops[fit.loop](fit, base / fit.name, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    _base = Path(sys.argv[1])
    _plan = [
        PlannedFit(**{**each, "sleeps": tuple(map(tuple, each["sleeps"]))})
        for each in json.loads((_base / "plan.json").read_text())
    ]
    train(_plan, _base, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
