"""Callbacks that do next to nothing."""

from pathlib import Path

from faults.base import ready, script, train
from faults.hooks import After
from faults.models import WIDTH, Classifier


@script()
def _train(out: Path, *, fixed: bool) -> None:
    callbacks = [After(lambda: None) for _ in range(3)]
    train(out, Classifier(), ready(80, WIDTH), callbacks=callbacks)
