"""Healthy: nanoGPT's loop with its own batches, fused attention and a fused optimizer."""

from pathlib import Path

from faults.base import Script
from faults.repositories import Gpt, get_batch, nano


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    nano(out, Gpt(), [get_batch(32, 64)] * 50)


SCRIPT = Script(train=_train)
