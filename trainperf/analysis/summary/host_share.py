"""A rank's share of its host's CPUs: by all headers, the launcher, masks and quotas."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from trainperf.analysis.summary.schema import HostShare
from trainperf.core.machine.limits import cpus_listed, share_of_rank
from trainperf.core.steps.records import RunInfo


def host_share(
    infos: Sequence[RunInfo], contention: Collection[Mapping[str, int]] = ()
) -> HostShare | None:
    """The share of the rank that has least; `None` where no rank says how many CPUs it may use.

    Args:
        infos: Headers of one attempt.
        contention: What each rank counted (`Totals.contention`).
    """
    on_hosts = Counter(_host(info) for info in infos)
    claims: dict[str, Counter[int]] = {}
    for info in infos:
        claims.setdefault(_host(info), Counter()).update(_mask(info))
    shares = [share for info in infos if (share := _share(info, on_hosts, claims)) is not None]
    least = min(shares, key=lambda share: (share.cpus_per_rank, share.rank), default=None)
    return least and replace(
        least,
        waited_fraction=_worst(contention, "waited_ns", "span_ns"),
        ran_fraction=_smallest(contention, "ran_ns", "span_ns"),
        workers_waited_fraction=_worst(
            contention, "workers_waited_ns", "workers_waited_ns", "workers_ran_ns"
        ),
        workers_ran=_worst(contention, "workers_ran_ns", "span_ns"),
        throttled_fraction=_worst(contention, "throttled_periods", "quota_periods"),
        preemptions_per_s=_worst(contention, "preemptions", "span_ns", scale=1e9),
    )


def ranks_here(info: RunInfo, on_hosts: Mapping[str, int]) -> int:
    """Ranks on the host of this one: as the launcher said, else by the hosts' names.

    A rank whose host is not known, or that left no file, may be here: with too few workers nothing
    is lost that more cannot bring, with too many all ranks are.

    Args:
        info: Header of the rank.
        on_hosts: Ranks with a file, by host; empty for an unknown one.
    """
    launched = info.hardware.get("local_world_size")
    if isinstance(launched, int) and launched:
        return launched
    here = _host(info)
    others = sum(number for host, number in on_hosts.items() if here and host not in (here, ""))
    return max(1, info.world_size - others)


def _worst(
    contention: Collection[Mapping[str, int]], part: str, *whole: str, scale: float = 1.0
) -> float | None:
    """The largest quotient of two sums of any rank; `None` where none has both."""
    return max((scale * quotient for quotient in _quotients(contention, part, whole)), default=None)


def _smallest(contention: Collection[Mapping[str, int]], part: str, *whole: str) -> float | None:
    return min(_quotients(contention, part, whole), default=None)


def _quotients(
    contention: Collection[Mapping[str, int]], part: str, whole: Sequence[str]
) -> list[float]:
    return [
        sums[part] / total
        for sums in contention
        if part in sums and (total := sum(sums.get(name, 0) for name in whole)) > 0
    ]


def _share(
    info: RunInfo, on_hosts: Mapping[str, int], claims: Mapping[str, Mapping[int, int]]
) -> HostShare | None:
    usable, every = _number(info, "cpu_count"), _number(info, "host_cpus")
    ranks = ranks_here(info, on_hosts)
    cpus = share_of_rank(usable, every, ranks)
    if cpus is None:
        return None
    if _mask(info) and on_hosts[_host(info)] == ranks:
        cpus = _by_masks(info, claims[_host(info)], ranks)
    on_device = info.device != "cpu"
    return HostShare(
        rank=info.rank,
        host=_host(info),
        ranks=ranks,
        cpus_per_rank=cpus,
        threads=1 if on_device else _number(info, "threads") or 1,
        workers=_number(info, "num_workers") or 0,
    )


def _by_masks(info: RunInfo, claims: Mapping[int, int], ranks: int) -> float:
    """The share where every rank of the host has said which CPUs it may run on.

    Each CPU is shared by the ranks that may run on it, and a quota by all of them.  E.g. eight
    ranks that may all run on the same 16 of 64 CPUs have 2 each, and so have eight with masks of
    two each.
    """
    mask, every = _mask(info), _number(info, "host_cpus")
    own = sum(1 / claims[cpu] for cpu in mask)
    return own if every is None or every >= len(claims) else min(own, every / ranks)


def _host(info: RunInfo) -> str:
    return str(info.hardware.get("host") or "")


def _mask(info: RunInfo) -> frozenset[int]:
    return cpus_listed(str(info.hardware.get("cpu_mask") or ""))


def _number(info: RunInfo, name: str) -> int | None:
    value = info.config.get(name, info.hardware.get(name))
    return int(value) if isinstance(value, int | float) else None
