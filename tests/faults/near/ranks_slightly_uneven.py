"""One rank is late by a thirtieth of the step."""

from pathlib import Path

from faults.base import script
from faults.ranks import Plan, train_ranks


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train_ranks(out, Plan(forward_ms=(28.0, 29.0), steps=50))
