"""Verdict on the loss of a run beside its baseline's; `comparison.loss_parity` reaches it."""

from typing import Literal

import msgspec


TOLERANCE = 0.02
"""Relative difference of the losses up to which they match; fixed before any run was compared."""

Verdict = Literal["same", "differs", "unknown"]
Unit = Literal["effective tokens", "samples"]


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """A run's loss compared with its baseline's."""

    verdict: Verdict
    why: str
    """The numbers, or what is missing, in a clause."""
    unit: Unit | None = None
    since: float | None = None
    """Where the compared range begins, in that unit."""
    work: float | None = None
    """Where it ends."""
    loss: float | None = None
    """Mean over the range."""
    baseline_loss: float | None = None
    difference: float | None = None
    """Relative to the baseline's loss; positive where the run's loss is higher."""
    noise: float | None = None
    """Half of its 95 % interval, from the pieces of the range and from the repeats."""
    tolerance: float = TOLERANCE
