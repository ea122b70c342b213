"""One long document among short ones in every batch; the twin groups them by length."""

from pathlib import Path

from faults.base import script, train
from faults.text import ROWS, Tagger, Texts, lengths


LONG = 200


@script("padding", changes=("similar_lengths",))
def _train(out: Path, *, fixed: bool) -> None:
    short = lengths(60, 40, 80)
    rows = [LONG if place % ROWS == 0 else length for place, length in enumerate(short)]
    train(out, Tagger(), Texts(sorted(rows) if fixed else rows), audit_at=None)
