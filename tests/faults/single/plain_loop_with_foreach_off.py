"""A loop of one's own, without brackets, whose optimizer updates one small tensor at a time."""

from pathlib import Path

from torch.nn import functional

from faults.base import script
from faults.operators import adamw, ready, small_layers
from trainperf.loop import LoopMonitor


@script("optimizer_not_fused")
def _train(out: Path, *, fixed: bool) -> None:
    model = small_layers(30)
    optimizer = adamw(fused=fixed, foreach=None if fixed else False)(model.parameters())
    monitor = LoopMonitor(out, report=False, audit_at=12).watch(model, optimizer)
    with monitor:
        for rows, labels in monitor.batches(ready(60, 64, size=64)):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(rows), labels)
            loss.backward()
            optimizer.step()
            monitor.end_step(loss)
