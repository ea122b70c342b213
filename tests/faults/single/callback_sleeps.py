"""A callback waits after every batch."""

from pathlib import Path

from faults.base import ready, script, train
from faults.hooks import sleeping
from faults.models import WIDTH, Classifier


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    callbacks = [] if fixed else [sleeping(0.02)]
    train(out, Classifier(), ready(60, WIDTH), callbacks=callbacks)
