"""Attention is written as its formula: all scores of all heads lie in memory."""

from pathlib import Path

from faults.base import script, train
from faults.models import Classifier
from faults.operators import Attention, eager, fused, ready


@script("attention")
def _train(out: Path, *, fixed: bool) -> None:
    body = Attention(fused if fixed else eager, heads=8)
    train(out, Classifier(body), ready(50, 256, 64, size=4))
