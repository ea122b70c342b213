"""Long and middling sequences in the same batches; the twin sorts them by length."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script("padding", changes=("similar_lengths",))
def _train(out: Path, *, fixed: bool) -> None:
    rows = lengths(80, 60, 160)
    train(out, Tagger(), Texts(sorted(rows) if fixed else rows), audit_at=None)
