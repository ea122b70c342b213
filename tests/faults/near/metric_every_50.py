"""A metric of training batches, in every fiftieth."""

from pathlib import Path

from faults.base import Script, ready, train
from faults.metric import Metered
from faults.models import WIDTH


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    train(out, Metered(every=50), ready(80, WIDTH))


SCRIPT = Script(train=_train)
