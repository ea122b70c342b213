"""Ceiling of all that makes the copy to the device faster: the batch is there already."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map

from trainperf.trials.padded import like
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


COPIES = 2
"""Batches that are kept there."""


def no_transfer(training: Training) -> list[Trial]:
    """The loader makes its batches as ever; the loop is handed others that need no copy."""
    source, device = training.batches, training.device

    def on() -> None:
        last = list(source.held)[-COPIES:]
        copies = itertools.cycle([on_device(batch, device) for batch in last])
        source.rearrange(lambda batches: [next(copies) for _ in batches])

    on_host = "nothing is copied: it trains on the CPU" if device.type == "cpu" else ""
    return [
        Trial(
            "no_transfer",
            on=on,
            off=lambda: source.rearrange(None),
            title="batches on the device already",
            tolerance=None,
            unavailable=on_host or training.no_batches,
        )
    ]


def on_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 whatever a loader yields
    """A batch of nested mappings, lists and tuples with its tensors there, in the same types."""

    def moved(part: Any) -> Any:  # noqa: ANN401 a leaf, or a mapping, also of the user's own class
        if isinstance(part, Mapping):
            return like(part, {name: on_device(value, device) for name, value in part.items()})
        return part.to(device) if isinstance(part, torch.Tensor) else part

    return tree_map(moved, batch, is_leaf=lambda part: isinstance(part, Mapping))
