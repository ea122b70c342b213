"""A worker sends what nobody uses: megabytes through a pipe with every batch."""

from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import default_collate

from faults.base import script
from faults.loads import Samples, fit, loader


PICTURES = np.ones((4, 1 << 20), dtype=np.uint8)


def with_originals(samples: list[Any]) -> Any:
    """The batch, and the pictures it was made of."""
    return [*default_collate(samples), PICTURES]


@script("data_wait", changes=("send_less",))
def _train(out: Path, *, fixed: bool) -> None:
    collate = default_collate if fixed else with_originals
    fit(out, loader(Samples(), num_workers=1, collate_fn=collate))
