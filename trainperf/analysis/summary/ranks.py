"""Contents of `summary.json` about several ranks: who is late, and what that costs.

Plain data in SI units, as in `trainperf.analysis.summary.schema`.
"""

from typing import Literal

import msgspec


WhoIsLate = Literal["same", "rotating", "nobody", "too_few_steps", ""]
"""Always the same ranks, now this one and now that one, none in most steps; or too few steps to
tell.  Empty in a summary of a release that did not say."""


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for again and again at one point."""

    rank: int
    late_s: float
    """Median time it comes after the typical other rank; with others like it, of all of them."""
    cause: str | None
    """Phase in which it spends the largest part of that; `None` when none explains it."""
    cause_s: float | None
    """Mean excess of that phase over the median other rank's, as far as it is late here."""


class LateWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steady steps at one synchronisation point, and who was late in them."""

    first_step: int
    last_step: int
    """Both are in it; steps between them that are not steady are not counted."""
    steps: int
    late_steps: int
    """In which some rank was clearly late."""
    of_ranks: tuple[int, ...]
    """In which that was each of the point's `often_late`."""
    lost_s: float
    """What the rank that came first waited for the last one, all steps together."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """How long a mean steady step would be without what it waits for: predictions, in seconds."""

    step_s: float
    """As it is."""
    ranks: tuple[int, ...]
    """Ranks that are late at some point."""
    without_ranks_s: float
    """If those were as fast as the typical other rank."""
    even_s: float
    """If the last rank of every step were."""
    hidden_s: float | None
    """If the all-reduce were hidden behind backward, and the same ranks were late; `None` where its
    tail is not covered."""
    below_s: float | None = None
    """By so much each of them may turn out shorter: the 95 % interval of the mean, and caches that
    stay warm where ranks no longer wait.  `None` with too few steps to tell."""
    above_s: float | None = None
    """By so much longer: the same, and CPUs that ranks leave to each other while they wait."""


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a job's devices went; seconds summed over the ranks that were read."""

    devices: int
    whole_s: float
    parts_s: dict[str, float]
    """`stragglers`, `data stall`, `reductions` (even the last rank waits for them), the rest of
    the `steps`, and gaps by label, `restart` among them.  They sum to *whole_s* but for what no
    record covers."""
