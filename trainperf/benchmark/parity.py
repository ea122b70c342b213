"""Parity of two steps: results computed from the same random numbers, and their difference.

A result is the loss if there is one (a scalar, the first element of a tuple, the entry `loss` of a
mapping, the attribute `loss`), else the tensor an inference function returned.
"""

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from trainperf.audit.loader.probe_loader import random_state_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one call returned, copied to the host and freed of its graph."""

    values: torch.Tensor
    """float64, flat; one element for a loss."""
    shape: tuple[int, ...]

    @property
    def loss(self) -> float | None:
        """The only value, if there is only one."""
        return float(self.values[0]) if self.values.numel() == 1 else None

    def difference(self, other: "StepResult") -> float | None:
        """Largest difference relative to the largest value; `None` for different shapes.

        Infinite where one of the two is not finite: NaN agrees with nothing.
        """
        if self.shape != other.shape:
            return None
        if not bool(torch.isfinite(self.values).all() and torch.isfinite(other.values).all()):
            return math.inf
        if not self.values.numel():
            return 0.0
        apart = float((self.values - other.values).abs().max())
        size = float(torch.maximum(self.values.abs().max(), other.values.abs().max()))
        return apart / size if apart else 0.0


def result_of(returned: object) -> StepResult | None:
    """The loss or the output in what a step *returned*; `None` if there is neither."""
    result = _pick(returned)
    if isinstance(result, torch.Tensor):
        shape = tuple(result.shape) if result.numel() != 1 else ()
        return StepResult(values=result.detach().to("cpu", torch.float64).flatten(), shape=shape)
    if isinstance(result, int | float) and not isinstance(result, bool):
        return StepResult(values=torch.tensor([result], dtype=torch.float64), shape=())
    return None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, Python, NumPy and torch (all devices) draw from *seed*; their state is restored."""
    with random_state_kept(range(torch.cuda.device_count())):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 the generator that the user's code draws from
        torch.manual_seed(seed)
        yield


def _pick(returned: object) -> object:
    if isinstance(returned, Mapping):
        return _pick(returned["loss"]) if "loss" in returned else _first(list(returned.values()))
    loss = getattr(returned, "loss", None)
    if loss is not None and not isinstance(returned, torch.Tensor):
        return loss
    if isinstance(returned, list | tuple):
        return _first(returned)
    return returned


def _first(values: "list[object] | tuple[object, ...]") -> object:
    return _pick(values[0]) if values else None
