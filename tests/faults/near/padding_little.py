"""Sequences that fill six sevenths of their rows."""

from pathlib import Path

from faults.base import Script, train
from faults.text import Tagger, Texts, lengths


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train(out, Tagger(), Texts(lengths(60, 92, 128), 128), audit_at=None)


SCRIPT = Script(train=_train)
