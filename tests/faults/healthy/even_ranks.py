"""Two ranks with the same work and few gradients."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train_ranks(out, Plan(forward_ms=(25.0, 25.0), steps=50))
