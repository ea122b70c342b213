"""Memory and processors that this process may use: a container may have less than the machine.

Reads the limits of control groups, version 2 and 1, on Linux; elsewhere asks the system.
"""

import math
import os
import platform
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath

import psutil

from trainperf.core.formatting.units import runs_of


ROOT = Path("/")
_GROUPS = "sys/fs/cgroup"


def memory_bytes(root: Path = ROOT) -> int:
    """Main memory: the machine's, or the smallest limit of the groups that this process is in."""
    limits = [
        int(limit)
        for limit in _each(root, "memory", "memory.max", "memory.limit_in_bytes")
        if limit.isdigit()
    ]
    return min([int(psutil.virtual_memory().total), *limits])


def free_bytes() -> int:
    """Main memory that this process may still take, about: the machine's, or what its group has."""
    own = memory_bytes() - psutil.Process().memory_info().rss
    return max(0, min(int(psutil.virtual_memory().available), own))


def cpu_count(root: Path = ROOT) -> int | None:
    """Processors that this process may use: those it runs on, or fewer by its quota of their time.

    `None` where the system does not say.
    """
    affinity = getattr(psutil.Process(), "cpu_affinity", None)  # macOS has none
    usable = len(affinity()) if affinity is not None else psutil.cpu_count()
    return usable if usable is None else min([usable, *_quotas(root)])


def busy_s() -> tuple[float, float]:
    """Processor time of the machine so far, of all CPUs: in use, and given to somebody else.

    The second is what a hypervisor took; it is no part of the first.
    """
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    stolen: float = getattr(times, "steal", 0.0)
    # Linux counts a guest's time in `user` and `nice` too.
    twice = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return sum(times) - idle - stolen - twice, stolen


def host_cpus(root: Path = ROOT) -> int | None:
    """Processors that all processes of this machine share, or of this container by its quota.

    Also those that this process may not run on.  `None` where the system does not say.
    """
    every = psutil.cpu_count()
    return every if every is None else min([every, *_quotas(root)])


def host_cores(root: Path = ROOT) -> float | None:
    """Cores of `host_cpus`: as many for each as the machine has.

    `None` where the system does not say, and on Apple's chips: torch leaves their slower cores be.
    """
    cores, every, shared = psutil.cpu_count(logical=False), psutil.cpu_count(), host_cpus(root)
    slower = platform.system() == "Darwin" and platform.machine() == "arm64"
    return shared * cores / every if cores and every and shared and not slower else None


def quota_periods(root: Path = ROOT) -> tuple[int, int] | None:
    """Periods of the quota on this process's time so far, and those in which it was used up.

    Of the group that was stopped most often; `None` where no group has a quota.
    """
    if next(_quotas(root), None) is None:
        return None
    texts = _each(root, "cpu", "cpu.stat", "cpu.stat")
    stats = (dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)) for text in texts)
    counts = (
        (int(stat["nr_periods"]), int(stat["nr_throttled"]))
        for stat in stats
        if "nr_periods" in stat
    )
    return max(counts, key=lambda count: count[1], default=None)


def cpu_mask() -> str | None:
    """CPUs that this process may run on, as Linux lists them, e.g. `0-7,16`; `None` on macOS."""
    affinity = getattr(psutil.Process(), "cpu_affinity", None)
    return None if affinity is None else listed(affinity())


def listed(cpus: Iterable[int]) -> str:
    """CPUs as ranges: 0, 1, 2 and 16 are `0-2,16`."""
    runs = runs_of(cpus)
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def cpus_listed(mask: str) -> frozenset[int]:
    """The CPUs of such a list; none of one that is damaged."""
    ends = [part.split("-") for part in mask.split(",") if part]
    whole = all(end.isdigit() and len(end) < 6 for part in ends for end in part)
    if not whole or any(len(part) > 2 for part in ends):
        return frozenset()
    return frozenset(cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1))


def launched_ranks() -> int | None:
    """Ranks on this host, as the launcher says (`LOCAL_WORLD_SIZE`); `None` where it does not."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(ranks)) if ranks.isdigit() else None


def share_of_rank(usable: int | None, every: int | None, ranks: int) -> float | None:
    """CPUs for one of so many ranks of a host; below 1 where there are more ranks than CPUs.

    A mask of its own is not divided again, and no number of ranks has more CPUs each than the host.

    Args:
        usable: Those that the rank may run on, by its mask and its quota (`cpu_count`).
        every: Those of the host, or of the container (`host_cpus`).
        ranks: That share them.
    """
    if usable is None:
        return None
    return usable / ranks if every is None else min(float(usable), every / ranks)


def _quotas(root: Path) -> Iterator[int]:
    """Processors by each quota; `max` or -1 is none."""
    newer = (line.partition(" ")[::2] for line in _each(root, "cpu", "cpu.max", ""))
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    older = zip(*(_each(root, "cpu", "", name) for name in files), strict=False)
    for quota, period in chain(newer, older):
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            yield math.ceil(int(quota) / int(period))


def _each(root: Path, controller: str, newer: str, older: str) -> Iterator[str]:
    """Contents of a file of the process's groups, from its own to the outermost one.

    Args:
        root: Of the file system.
        controller: E.g. `cpu`.
        newer: Name of the file in version 2; empty for none.
        older: The same in version 1.
    """
    for line in text_of(root / "proc/self/cgroup").strip().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top, name = (root / _GROUPS / controller, older) if controllers else (root / _GROUPS, newer)
        group = PurePosixPath(path.lstrip("/"))
        # A container often sees its own group as the outermost one, under the host's name for it.
        texts = (text_of(top / inner / name).strip() for inner in (group, *group.parents))
        yield from filter(None, texts)


def text_of(path: Path) -> str:
    """What a file of the system says; empty where there is none, or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
