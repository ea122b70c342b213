"""Rows that are half empty, from a loader that the step waits for."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script("padding", "data_wait", changes=("similar_lengths",))
def _train(out: Path, *, fixed: bool) -> None:
    rows = lengths(60, 30, 128)
    texts = Texts(sorted(rows)) if fixed else Texts(rows, 128, sleep_s=0.006)
    train(out, Tagger(), texts, audit_at=None)
