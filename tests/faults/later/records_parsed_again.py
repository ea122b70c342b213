"""Lines of JSON are parsed and put in order, field by field, for each row of each batch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from faults.base import script
from faults.models import perceptron
from faults.repositories import nano


FIELDS, ROWS, STEPS = 256, 64, 50
NAMES = [f"sensor_{number}" for number in range(FIELDS)]


class Records(Dataset[tuple[Tensor, int]]):
    """The lines of a file, or what was parsed from them beforehand."""

    def __init__(self, *, parsed: bool) -> None:
        draw = np.random.default_rng(0)
        self._lines = [
            json.dumps(
                {
                    "label": key % 10,
                    "values": dict(zip(NAMES, draw.normal(size=FIELDS).tolist(), strict=True)),
                }
            )
            for key in range(4 * ROWS)
        ]
        self._parsed = [_parse(line) for line in self._lines] if parsed else None

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> tuple[Tensor, int]:
        place = key % len(self._lines)
        return _parse(self._lines[place]) if self._parsed is None else self._parsed[place]


def _parse(line: str) -> tuple[Tensor, int]:
    record: dict[str, Any] = json.loads(line)
    values = [float(record["values"].get(name, 0.0)) for name in NAMES]
    return torch.tensor(values), record["label"]


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    loader = DataLoader(Records(parsed=fixed), batch_size=ROWS)
    model = torch.nn.Sequential(torch.nn.Linear(FIELDS, 512), torch.nn.ReLU(), perceptron(2))
    nano(out, model, loader)  # type: ignore[arg-type]
