"""A metric in every batch, and a callback that waits after it."""

from pathlib import Path

from faults.base import ready, script, train
from faults.hooks import sleeping
from faults.metric import Metered
from faults.models import WIDTH


@script("metrics_every_batch", "callbacks")
def _train(out: Path, *, fixed: bool) -> None:
    callbacks = [] if fixed else [sleeping(0.02)]
    model = Metered(every=1000 if fixed else 1)
    train(out, model, ready(60, WIDTH), callbacks=callbacks)
