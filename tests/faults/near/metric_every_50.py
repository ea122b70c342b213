"""A metric of training batches, in every fiftieth."""

from pathlib import Path

from faults.base import ready, script, train
from faults.metric import Metered
from faults.models import WIDTH


@script()
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Metered(every=50), ready(80, WIDTH))
