"""Ceiling of all that makes the copy to the device faster: the batch is there already."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trainperf.trials.batch_source import BatchSource, Rearrangement
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE, RULES = "no_transfer", "batches on the device already", ("transfer",)
COPIES = 2
"""Batches that are kept there."""


def no_transfer(training: Training) -> list[Trial]:
    """The loader makes its batches as ever; the loop is handed others that need no copy."""
    source, device = training.source, training.device
    why = "its batches cannot be taken over" if source is None else ""
    if device.type == "cpu":
        why = "nothing is copied: it trains on the CPU"
    if source is None or why:
        return [cannot(ID, why, title=TITLE, kind="ceiling", rules=RULES)]
    switch = _OnDevice(source, device)
    return [
        Trial(
            ID,
            on=switch.on,
            off=lambda: source.rearrange(None),
            kind="ceiling",
            title=TITLE,
            rules=RULES,
            tolerance=None,
            finish=switch.finish,
        )
    ]


class _OnDevice:
    def __init__(self, source: BatchSource, device: torch.device) -> None:
        self._source, self._device = source, device
        self._copies: Iterator[Any] | None = None

    def on(self) -> None:
        if self._copies is None:
            last = list(self._source.held)[-COPIES:]
            self._copies = itertools.cycle([on_device(batch, self._device) for batch in last])
        copies = self._copies
        self._source.rearrange(Rearrangement(lambda batches: [next(copies) for _ in batches]))

    def finish(self) -> None:
        self._copies = None


def on_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 whatever a loader yields
    """A batch of nested mappings, lists and tuples with its tensors there."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        moved = {name: on_device(value, device) for name, value in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(on_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(on_device(value, device) for value in batch)
    return batch
