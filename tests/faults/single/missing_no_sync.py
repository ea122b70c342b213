"""Four micro-batches a step, each of which reduces all gradients."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script("no_sync")
def _train(out: Path, *, fixed: bool) -> None:
    plan = Plan(
        micro_batches=4, no_sync=fixed, layers=8, width=384, forward_ms=(2.0, 2.0), steps=45
    )
    train_ranks(out, plan)
