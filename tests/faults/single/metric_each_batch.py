"""The area under the curve of every class is computed from every training batch."""

from pathlib import Path

from faults.base import ready, script, train
from faults.metric import Metered
from faults.models import WIDTH


@script("metrics_every_batch")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Metered(every=1000 if fixed else 1), ready(60, WIDTH))
