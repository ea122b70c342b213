"""Gradients of many small layers, each reduced by itself."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script("allreduce_tail")
def _train(out: Path, *, fixed: bool) -> None:
    ddp = {} if fixed else {"bucket_cap_mb": 0.001}
    train_ranks(out, Plan(layers=60, width=16, ddp=ddp))
