"""Two micro-batches a step on two ranks, of which the last one reduces."""

from pathlib import Path

from faults.base import Script
from faults.ranks import Plan, train_ranks


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train_ranks(out, Plan(micro_batches=2, forward_ms=(14.0, 14.0), steps=50))


SCRIPT = Script(train=_train)
