"""The same small training in the loops of other frameworks, with the same truth planted in each.

A batch takes 20 ms longer to come in every second step, logging 5 ms longer in two of four; 37.5 %
of the tokens are padding, and every fifth update overflows.
"""

import importlib
import os
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from lightning.fabric.plugins.precision import MixedPrecision as OfFabric
from support.hugging_face import Rows, Tiny
from support.loops import Sleeper, on_clock
from support.stand_ins import put_in
from torch.utils.data import DataLoader, default_collate

from trainperf.loop import LoopMonitor
from trainperf.testing import FakeClock


ROOT = Path(__file__).parents[2]
STEPS = 24
NAPS_MS = {"data_wait": (10.0, 30.0), "callbacks": (5.0, 10.0)}
"""Short and long naps in a phase."""
EVERY_OVERFLOW = 5


def scaler() -> torch.amp.GradScaler:
    """One that overflows only where it is planted."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=10**6)


@dataclass
class Planted:
    """What happens in a training, and how long it takes on a clock that nothing else moves."""

    clock: FakeClock = field(default_factory=FakeClock)
    sleeper: Sleeper = field(init=False)
    updates: int = 0
    scales: bool = True
    """Whether the loss is scaled, so that an overflow costs an update."""

    def __post_init__(self) -> None:
        self.sleeper = Sleeper(self.clock)

    def collate(self, rows: list[Any]) -> Any:
        """A batch, after a while."""
        self._nap("data_wait", 1)
        return default_collate(rows)

    def log(self) -> None:
        """What a user does after an update."""
        self._nap("callbacks", 2)

    def _nap(self, where: str, turn: int) -> None:
        short_ms, long_ms = NAPS_MS[where]
        long = len(self.sleeper.naps[where]) // turn % 2
        self.sleeper.sleep(where, long_ms if long else short_ms)

    def loss(self, loss: torch.Tensor) -> torch.Tensor:
        """It overflows in every fifth update."""
        self.updates += 1
        return loss * float("inf") if self.updates % EVERY_OVERFLOW == 0 else loss

    def batches(self) -> "DataLoader[Any]":
        """A loader for one epoch of so many steps."""
        return DataLoader(Rows(2 * STEPS), batch_size=2, collate_fn=self.collate)


def phases(
    monitor: LoopMonitor,
    planted: Planted,
    forward: Callable[[], torch.Tensor],
    backward: Callable[[torch.Tensor], object],
    *update: Callable[[], object],
) -> torch.Tensor:
    """One step in its phases; its loss."""
    with monitor.phase("forward"):
        loss = planted.loss(forward())
    with monitor.phase("backward"):
        backward(loss)
    with monitor.phase("optimizer"):
        for act in update:
            act()
    with monitor.phase("callbacks"):
        planted.log()
    return loss


def accelerate(path: Path, planted: Planted) -> Path | None:
    """A loop of one's own with objects that Accelerate has prepared."""
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = scaler()
    model = Tiny()
    model, optimizer, loader, scheduler = accelerator.prepare(
        model,
        inner := torch.optim.SGD(model.parameters(), lr=0.01),
        planted.batches(),
        torch.optim.lr_scheduler.ConstantLR(inner),
    )
    monitor = LoopMonitor(path, report=False, lines=False)
    monitor.watch(model, optimizer, accelerator.scaler, accelerator.device, scheduler)
    with monitor:
        for batch in monitor.batches(loader):
            with accelerator.accumulate(model):
                loss = phases(
                    monitor,
                    planted,
                    lambda: model(**batch)["loss"],  # noqa: B023 it is called at once
                    accelerator.backward,
                    *(optimizer.step, optimizer.zero_grad, scheduler.step),
                )
            if accelerator.sync_gradients:
                monitor.end_step(loss)
    return monitor.run


def fabric(path: Path, planted: Planted) -> Path | None:
    """A loop of one's own with objects that Fabric has set up."""
    scales = scaler()
    runs = Fabric(accelerator="cpu", devices=1, plugins=OfFabric("16-mixed", "cpu", scales))
    runs.launch()
    model = Tiny()
    model, optimizer = runs.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = runs.setup_dataloaders(planted.batches())
    with LoopMonitor(path, report=False, lines=False).watch(model, optimizer, scales) as monitor:
        for batch in monitor.batches(loader):
            loss = phases(
                monitor,
                planted,
                lambda: model(**batch)["loss"],  # noqa: B023 it is called at once
                runs.backward,
                *(optimizer.step, optimizer.zero_grad),
            )
            monitor.end_step(loss)
    return monitor.run


ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""What a launcher tells the only process."""


def deepspeed(path: Path, planted: Planted) -> Path | None:
    """A loop of one's own around an engine, whose loss scale is not heard."""
    planted.scales = False
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    model = Tiny()
    with pytest.MonkeyPatch.context() as patch:
        put_in("deepspeed", patch)
        for name, value in ALONE.items():
            patch.setenv(name, value)
        engine, *_ = importlib.import_module("deepspeed").initialize(
            model=model,
            model_parameters=model.parameters(),
            config={"train_batch_size": 2, "optimizer": optimizer},
        )
    with LoopMonitor(path, report=False, lines=False).watch(engine) as monitor:
        for batch in monitor.batches(planted.batches()):
            loss = phases(
                monitor,
                planted,
                lambda: engine(**batch)["loss"],  # noqa: B023 it is called at once
                engine.backward,
                engine.step,
            )
            monitor.end_step(loss)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return monitor.run


def ultralytics(path: Path, planted: Planted) -> Path | None:
    """The trainer of the example, over a stand-in for Ultralytics' own."""
    with pytest.MonkeyPatch.context() as patch:
        put_in("ultralytics", patch, always=True)
        measured = runpy.run_path(str(ROOT / "examples" / "ultralytics_shapes.py"))

    class Trained(measured["MeasuredTrainer"]):  # type: ignore[misc]  # it is not known before
        def __init__(self) -> None:
            super().__init__()
            self.model, self.train_loader, self.scaler = Tiny(), planted.batches(), scaler()
            self.callbacks = {"on_train_batch_end": [lambda _: planted.log()]}

        def compute(self, batch: Any) -> torch.Tensor:
            return planted.loss(self.model(**batch)["loss"])

    before = Path.cwd()
    try:
        os.chdir(path)
        trained = Trained()
        trained.train()
    finally:
        os.chdir(before)
    run = trained.monitor.run
    return None if run is None else path / run


LOOPS: dict[str, Callable[[Path, Planted], Path | None]] = {
    "accelerate": accelerate,
    "fabric": fabric,
    "deepspeed": deepspeed,
    "ultralytics": ultralytics,
}
"""From a folder and what is planted to the run directory."""


def trained(name: str, path: Path, planted: Planted) -> Path | None:
    """One of them, on the clock of what is planted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainperf.loop.monitor.Fit", on_clock(planted.clock))
        return LOOPS[name](path, planted)
