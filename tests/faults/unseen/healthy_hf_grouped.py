"""Healthy: texts grouped by length and padded to the longest of their batch."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Tagger(2e-5), Texts(sorted(lengths(60, 30, 120))), audit_at=None)
