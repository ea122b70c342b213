"""Both ranks wait for their batches, and one of them is late in forward besides."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script("straggler", "data_wait")
def _train(out: Path, *, fixed: bool) -> None:
    wait = 0.0 if fixed else 14.0
    plan = Plan(data_ms=(wait, wait), forward_ms=(10.0, 10.0 if fixed else 24.0))
    train_ranks(out, plan)
