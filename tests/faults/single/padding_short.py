"""Short sequences in long rows; the twin has several in each row and none left."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script("padding", changes=("pad_to_longest", "pack_rows"))
def _train(out: Path, *, fixed: bool) -> None:
    rows = [128] * (16 * 60) if fixed else lengths(60, 24, 60) + [128] * 16
    train(out, Tagger(), Texts(rows, 128), audit_at=None)
