"""A callback writes a file after every batch."""

from pathlib import Path

from faults.base import ready, script, train
from faults.hooks import writing
from faults.models import WIDTH, Classifier


@script("callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    out.mkdir(parents=True)
    callbacks = [] if fixed else [writing(out / "state.bin", 30_000_000)]
    train(out, Classifier(), ready(60, WIDTH), callbacks=callbacks)
