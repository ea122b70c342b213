"""Contents of `summary.json` about ranks: their share of a host, and waits for each other."""

from typing import Literal

import msgspec


class HostShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has of its host's CPUs, on the rank that has least, and what it asks of them."""

    ranks: int
    """Ranks on its host; where nothing tells, all of them."""
    cpus_per_rank: float
    """Of its own, by masks, quotas and the number of ranks; below 1 if there are fewer CPUs."""
    threads: int
    """That compute: of a model on the CPU those of torch, on a device the one that launches."""
    workers: int
    """Of the rank's loader."""
    waited_fraction: float | None = None
    """Share of the time for which a training thread was ready to run and had no CPU; of the rank
    where it is largest, as all that follow.  `None` where the system does not count it."""
    ran_fraction: float | None = None
    """Share for which it had one; of the rank where it is smallest."""
    workers_waited_fraction: float | None = None
    """Of the time for which a loader's workers were ready to run; `None` without workers."""
    workers_ran: float | None = None
    """CPUs that a loader's workers used together, in the mean; `None` without workers."""
    kernel: float | None = None
    """CPUs on which the kernel worked for the rank's process, in the mean: most of it hands out
    memory, page by page."""
    throttled_fraction: float | None = None
    """Of the periods of a quota those in which it was used up; `None` without a quota."""


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


class SyncPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of the step at which ranks wait for each other; over steady steps.

    The transfer is what even the last rank waits, the skew of a rank what it waits beyond that.
    """

    point: str
    """Phase in which the ranks wait: `backward` (the all-reduce), under Lightning `loop` (before
    every fetch), or another one in which collectives are issued."""
    n: int
    """Steps in which every rank's wait is known."""
    wait_s: tuple[float, ...]
    """Mean wait per rank."""
    transfer_s: float
    """Mean of the smallest wait; at points other than `backward` with the work of that phase."""
    skew_s: float | None
    """Median of the largest skew."""
    lost_s: float
    """Mean of the largest skew: what the fastest rank loses here in a step."""
    late_fraction: float
    """Share of steps in which those in *late* were clearly late, or else the one that most often
    was."""
    even_s: float = 0.0
    """Mean of what the last rank comes after the typical other one: what a step would save here if
    every rank were as fast as the typical one."""
    named_s: float = 0.0
    """What it would save if those in *late* were."""
    who: WhoIsLate = ""
    late: tuple[LateRank, ...] = ()
    """All ranks that are late here by themselves."""
    host: str = ""
    """The host whose ranks they all are; empty where there is none, or it is unknown."""
    often_late: dict[int, float] = {}
    """Up to eight ranks that were clearly late most often, the most frequent first, and in which
    share of the steps each of them was."""


At = Literal[
    "stopped",
    "gone",
    "ended",
    "silent",
    "works",
    "answer",
    "stands",
    "loader",
    "saving",
    "collective",
    "backward",
]
"""What ranks are at: they say nothing themselves; they are at a line, still or not; they wait for a
server, for a batch, for a disk or for others.  Those that wait for others, which hold nobody, are
last."""


class RanksAt(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are at the same."""

    ranks: tuple[int, ...]
    at: At
    where: str = ""
    """Line of the user's code."""
    function: str = ""
    """Collective that is waited in, or the user's function."""
    error: str = ""
    """Type of the exception that ended the training, or that is handled there."""


class Hang(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that do not end."""

    lasts_s: float
    """Since the last step ended."""
    step: int
    """Number of the one that does not; -1 before the first."""
    over: bool
    """Whether nobody has written of it for long: the job is gone by now."""
    at: tuple[RanksAt, ...]
    """Those that hold the others first."""
    sequences: dict[str, dict[int, tuple[int, ...]]] = {}
    """Process group to the number of collectives begun in it and the ranks that have, where these
    are not all alike."""
    paged_bytes_per_s: dict[int, float] = {}
    """Rank to what of its memory comes from a disk, at least, where that is slow."""
    starved: int = 0
    """Processes that a host has ended for lack of memory during the fit, where a rank is gone."""
