"""Rows that are half empty, from a loader that the step waits for."""

from pathlib import Path

from faults.base import Script, train
from faults.text import Tagger, Texts, lengths


def _train(out: Path, *, fixed: bool) -> None:
    rows = lengths(60, 30, 128)
    texts = Texts(sorted(rows)) if fixed else Texts(rows, 128, sleep_s=0.006)
    train(out, Tagger(), texts, audit_at=None)


SCRIPT = Script(expected=("padding", "data_wait"), train=_train, changes=("similar_lengths",))
