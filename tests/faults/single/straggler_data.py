"""One of two ranks makes its batches much slower than the other."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script("straggler")
def _train(out: Path, *, fixed: bool) -> None:
    train_ranks(out, Plan(data_ms=(0.0, 0.0) if fixed else (0.0, 12.0), forward_ms=(10.0, 10.0)))
