"""Two micro-batches a step on two ranks, of which the last one reduces."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train_ranks(out, Plan(micro_batches=2, forward_ms=(14.0, 14.0), steps=50))
