"""`padding="max_length"`: rows of 256 tokens for texts of at most 90."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script("padding", changes=("pad_less",))
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Tagger(), Texts(lengths(60, 30, 90), None if fixed else 256), audit_at=None)
