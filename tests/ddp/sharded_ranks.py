"""One of two ranks whose model is sharded.

FSDP2 and FSDP under Lightning; then FSDP2, FSDP and tensor parallelism in plain loops, the first
two with a scaler and two batches that overflow on rank 1, and with a rank that is late.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import strategies
from support.fits import Loader, Model, trainer
from support.loops import learn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor


STEPS = 20
POISONED = (7, 9)
LATE_STEPS, LATE_S = 60, 0.02


class Sharded(Model):
    """A LightningModule that shards itself."""

    def configure_model(self) -> None:
        """Shard over the data-parallel half of the mesh."""
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])


class FSDPStrategy(strategies.FSDPStrategy):
    """Lightning's, which it refuses on a CPU: by its class, and as it names FSDP no device."""

    def _setup_model(self, model: nn.Module) -> nn.Module:
        device = torch.device("cpu")
        return FullyShardedDataParallel(model, device_id=device, use_orig_params=True)


class Whole(Model):
    """A LightningModule that `FSDPStrategy` wraps."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Of the parameters as they are sharded by then."""
        return torch.optim.AdamW(self.trainer.model.parameters(), 1e-3)


class Small(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """A scalar."""
        return self.second(torch.relu(self.first(x))).square().mean()


def fsdp2(mesh: DeviceMesh, *, reshard: bool = True) -> nn.Module:
    """By `fully_shard`."""
    model = Small()
    for part in (model.first, model.second, model):
        fully_shard(part, mesh=mesh, reshard_after_forward=reshard)
    return model


def fsdp(mesh: DeviceMesh) -> nn.Module:
    """By the wrapper."""
    del mesh
    return FullyShardedDataParallel(Small(), device_id=torch.device("cpu"))


def tensor_parallel(mesh: DeviceMesh) -> nn.Module:
    """One layer, by columns."""
    plan = {"first": ColwiseParallel(output_layouts=Replicate())}
    return parallelize_module(Small(), mesh, plan)


Make = Callable[[DeviceMesh], nn.Module]
CASES: dict[str, tuple[Make, Any]] = {
    "fsdp2": (fsdp2, lambda: torch.amp.GradScaler("cpu", init_scale=2.0**8)),
    "fsdp": (fsdp, lambda: ShardedGradScaler("cpu", init_scale=2.0**8)),
    "tensor_parallel": (tensor_parallel, lambda: None),
}


def plain(model: nn.Module, scaler: Any, base: Path, rank: int) -> LoopMonitor:
    """A plain loop; a poisoned batch makes every gradient infinite."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    monitor = LoopMonitor(base, report=False, lines=False, audit_at=14)
    monitor.watch(model, optimizer, scaler)
    for step, batch in enumerate(monitor.batches([torch.ones(2, 16)] * STEPS)):
        poisoned = scaler is not None and step in POISONED and rank == 1
        with monitor.phase("forward"):
            loss = model(batch * float("inf") if poisoned else batch)
        learn(monitor, optimizer, loss, scaler)
    monitor.close()
    return monitor


def late(model: nn.Module, base: Path, rank: int) -> None:
    """A plain loop in which rank 1 sleeps between forward and backward."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    monitor = LoopMonitor(base, report=False, lines=False).watch(model, optimizer)
    for batch in monitor.batches([torch.ones(2, 16)] * LATE_STEPS):
        with monitor.phase("forward"):
            loss = model(batch)
        with monitor.phase("callbacks"):
            time.sleep(LATE_S * rank)
        learn(monitor, optimizer, loss)
    monitor.close()


def under_lightning(base: Path, strategy: strategies.Strategy, module: Model) -> None:
    """One fit."""
    perf = TrainPerf(report=False)
    trainer(base, perf, strategy=strategy, devices=2).fit(module, Loader(STEPS))


def main(root: Path) -> None:
    """All of them, in the same order on both ranks."""
    strategy = strategies.ModelParallelStrategy(process_group_backend="gloo")
    under_lightning(root / "lightning", strategy, Sharded())
    under_lightning(root / "lightning-fsdp", FSDPStrategy(process_group_backend="gloo"), Whole())
    rank = torch.distributed.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    for name, (make, scaler) in CASES.items():
        monitor = plain(make(mesh), scaler(), root / name, rank)
        faults = json.dumps(monitor.monitor.guard.faults)
        (root / name / f"faults-{rank}.json").write_text(faults)
    late(fsdp2(mesh, reshard=False), root / "late-fsdp2", rank)
    late(fsdp(mesh), root / "late-fsdp", rank)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
