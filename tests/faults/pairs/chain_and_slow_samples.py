"""An activation written as its formula, and samples that take long to make."""

import time
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from faults.base import script, train
from faults.models import Classifier
from faults.operators import Ready, Written, by_formula, in_one, ready


class Late:
    """Batches that come after a sleep."""

    def __init__(self, batches: Ready, sleep_s: float) -> None:
        self._batches = batches
        self._sleep_s = sleep_s

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._batches:
            time.sleep(self._sleep_s)
            yield batch


@script("elementwise_chain", "data_wait")
def _train(out: Path, *, fixed: bool) -> None:
    body = Written(in_one if fixed else by_formula, hidden=2048)
    loader = Late(ready(50, 64, size=128), 0.0 if fixed else 6e-3)
    train(out, Classifier(body), loader)
