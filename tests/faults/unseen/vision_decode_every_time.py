"""Compressed images are unpacked anew for every sample of every batch."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from faults.base import script
from faults.loads import ROWS, STEPS, WIDTH, fit, loader


class Archive(Dataset[Any]):
    """One packed image under every key."""

    def __init__(self, *, cached: bool) -> None:
        pixels = np.random.default_rng(0).integers(0, 16, (192, 192), dtype=np.uint8)
        self._packed = zlib.compress(pixels.tobytes())
        self._cached = self._unpack() if cached else None

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, key: int) -> Any:
        pixels = self._unpack() if self._cached is None else self._cached
        return torch.from_numpy(pixels[:WIDTH].astype(np.float32)), key % 10

    def _unpack(self) -> Any:
        return np.frombuffer(zlib.decompress(self._packed), np.uint8)


@script("data_wait", changes=("cheaper_sample",))
def _train(out: Path, *, fixed: bool) -> None:
    fit(out, loader(Archive(cached=fixed)))
