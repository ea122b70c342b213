"""Gradients of many small layers, each reduced by itself."""

from pathlib import Path

from faults.base import Script
from faults.ranks import Plan, train_ranks


def _train(out: Path, *, fixed: bool) -> None:
    ddp = {} if fixed else {"bucket_cap_mb": 0.001}
    train_ranks(out, Plan(layers=60, width=16, ddp=ddp))


SCRIPT = Script(expected=("allreduce_tail",), train=_train)
