"""Healthy: texts grouped by length and padded to the longest of their batch."""

from pathlib import Path

from faults.base import Script, train
from faults.text import Tagger, Texts, lengths


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train(out, Tagger(2e-5), Texts(sorted(lengths(60, 30, 120))), audit_at=None)


SCRIPT = Script(train=_train)
