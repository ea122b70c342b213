"""`padding="max_length"`: rows of 256 tokens for texts of at most 90."""

from pathlib import Path

from faults.base import Script, train
from faults.text import Tagger, Texts, lengths


def _train(out: Path, *, fixed: bool) -> None:
    train(out, Tagger(), Texts(lengths(60, 30, 90), None if fixed else 256), audit_at=None)


SCRIPT = Script(expected=("padding",), train=_train, changes=("pad_less",))
