"""One of two ranks that train a series of fits: run by `conftest.py`, once for all tests.

Each fit has a directory of its own under the one given; each rank leaves what it planted there.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy
from support.fits import At, Loader, Model, Sleeper, awake, trainer
from torch.autograd import Variable
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from trainperf.core.launch_environment import VARIABLE, LaunchOptions, TrialLaunch, TrialsOver
from trainperf.lightning import TrainPerf
from trainperf.trials import Trial


RANK = int(os.environ["RANK"])
STEPS = 16
SLEEP_S = 0.040
MASK_BYTES = 32 << 20


def slow_on(rank: int) -> Callable[[], None]:
    """Sleeps, on one rank only."""
    return Sleeper(SLEEP_S) if rank == RANK else awake


class Deep(Model):
    """Two layers, the first of which is left out of some batches."""

    def __init__(self, *, leave_out: Callable[[int], bool] = lambda batch_idx: False) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.leave_out = leave_out

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss, after some work of its own."""
        data = batch["x"] if isinstance(batch, dict) else batch
        loss = self.loss(data if self.leave_out(batch_idx) else self.first(data))
        self.in_forward()
        return loss


class PlantedError(Exception):
    """What a rank raises on purpose."""


class Failing(Deep):
    """Raises in the sixth batch, on every rank."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Train, or raise."""
        if batch_idx == 5:
            raise PlantedError
        return super().training_step(batch, batch_idx)


class SlowEnd(Deep):
    """Backward takes longer after its gradients are computed, in some micro-batches."""

    def __init__(self, sleeper: Sleeper, *, where: Callable[[int], bool]) -> None:
        super().__init__()
        self.sleeper = sleeper
        self.where = where

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Let the engine sleep when all gradients are there, as the last of what it calls then."""
        loss = super().training_step(batch, batch_idx)
        if self.where(batch_idx):
            queue = Variable._execution_engine.queue_callback
            loss.register_hook(lambda gradient: queue(lambda: queue(self.sleeper)))
        return loss


def run(root: Path, name: str, model: Model, *callbacks: Any, **options: Any) -> None:
    """One fit under `TrainPerf`; leaves what was planted on this rank."""
    strategy = DDPStrategy(process_group_backend="gloo", **options.pop("ddp", {}))
    loader = Loader(options.pop("batches", STEPS), batch=options.pop("batch", None))
    perf = TrainPerf(report=False, trials=options.pop("trials", ()))
    training = trainer(root / name, perf, *callbacks, strategy=strategy, devices=2, **options)
    with contextlib.suppress(PlantedError, TrialsOver):
        training.fit(model, loader)
    sleepers = [model.in_forward, getattr(model, "sleeper", None)]
    planted = {
        "slept_ns": next((s.slept_ns for s in sleepers if isinstance(s, Sleeper)), []),
        "run": perf.state_dict()["run"],
        "hooks": sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()),
    }
    (root / name / f"planted-{RANK}.json").write_text(json.dumps(planted))


def slow_forward(**options: Any) -> Deep:
    """Slow before backward on rank 1."""
    model = Deep(**options)
    model.in_forward = slow_on(1)
    return model


def tried(root: Path, name: str) -> None:
    """A fit that tries what does nothing, and what fails on one rank only, and is ended by it."""

    def fail() -> None:
        if RANK == 1:
            raise PlantedError

    launch = LaunchOptions(
        dirpath=str(root / name), trials=TrialLaunch(minutes=0.02, only=("idle", "fails"))
    )
    os.environ[VARIABLE] = launch.environment({})[VARIABLE]
    run(root, name, Deep(), trials=[Trial("fails", fail, awake), Trial("idle", awake, awake)])
    del os.environ[VARIABLE]


def main(root: Path) -> None:
    """All fits, in the same order on both ranks."""
    run(root, "healthy", Deep())
    tried(root, "tried")
    run(root, "before_backward", slow_forward())
    run(root, "batch_end", Deep(), At("on_train_batch_end", slow_on(1)))
    unreliable = {"leave_out": lambda batch_idx: batch_idx >= 4}
    unused = {"find_unused_parameters": True}
    run(root, "unused", slow_forward(**unreliable), ddp=unused, batches=2 * STEPS)
    run(root, "static_graph", slow_forward(), ddp={"static_graph": True})
    run(root, "comm_hook", slow_forward(), ddp={"ddp_comm_hook": default_hooks.allreduce_hook})
    for name, odd in (("slow_unsynchronized", 0), ("slow_synchronized", 1)):
        model = SlowEnd(Sleeper(SLEEP_S), where=lambda batch_idx, odd=odd: batch_idx % 2 == odd)
        run(root, name, model, accumulate_grad_batches=2, batches=2 * STEPS)
    sending = Deep()
    sending.register_buffer("mask", torch.ones(MASK_BYTES, dtype=torch.uint8))
    run(root, "buffers", sending)
    run(root, "failing", Failing())
    mask = torch.tensor([[1, 1, 1], [1, 1 - RANK, 1 - RANK]])
    (root / "tokens" / "trainperf").mkdir(parents=True, exist_ok=True)
    run(root, "tokens", Deep(), batch={"x": torch.ones(2, 4), "attention_mask": mask})


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    main(Path(sys.argv[1]))
