"""Two ranks with the same work and few gradients."""

from pathlib import Path

from faults.base import Script
from faults.ranks import Plan, train_ranks


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train_ranks(out, Plan(forward_ms=(25.0, 25.0), steps=50))


SCRIPT = Script(train=_train)
