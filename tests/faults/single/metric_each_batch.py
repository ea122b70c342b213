"""The area under the curve of every class is computed from every training batch."""

from pathlib import Path

from faults.base import Script, ready, train
from faults.metric import Metered
from faults.models import WIDTH


def _train(out: Path, *, fixed: bool) -> None:
    train(out, Metered(every=1000 if fixed else 1), ready(60, WIDTH))


SCRIPT = Script(expected=("metrics_every_batch",), train=_train)
