"""Token classification with `padding="max_length"` over short sentences, a real encoder above."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from faults.base import script, train
from faults.encoders import LONGEST, Tagger, padded


@script("padding", changes=("pad_less",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    rows = torch.randint(12, 70, (60, 16)).tolist()
    batches: Any = padded(rows, to=None if fixed else LONGEST)
    train(out, Tagger(), DataLoader(batches, batch_size=None))
