"""Sequences that fill six sevenths of their rows."""

from pathlib import Path

from faults.base import script, train
from faults.text import Tagger, Texts, lengths


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Tagger(), Texts(lengths(60, 92, 128), 128), audit_at=None)
