"""One of two ranks takes much longer for the same forward."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script("straggler")
def _train(out: Path, *, fixed: bool) -> None:
    train_ranks(out, Plan(forward_ms=(10.0, 10.0) if fixed else (22.0, 10.0)))
