"""Healthy: nanoGPT's loop with its own batches, fused attention and a fused optimizer."""

from pathlib import Path

from faults.base import script
from faults.repositories import Gpt, get_batch, nano


@script()
def _train(out: Path, *, fixed: bool) -> None:
    nano(out, Gpt(), [get_batch(32, 64)] * 50)
