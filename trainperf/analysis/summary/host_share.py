"""A rank's share of its host's CPUs: by all headers, the launcher, masks and quotas."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

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
    on_hosts = Counter(map(host_of, infos))
    claims = Counter((host_of(info), cpu) for info in infos for cpu in _mask(info))
    cpus_on = Counter(host for host, _ in claims)
    shares = filter(None, (_share(info, on_hosts, claims, cpus_on) for info in infos))
    least = min(shares, key=lambda share: share.cpus_per_rank, default=None)

    def quotients(part: str, *whole: str) -> list[float]:
        return [
            sums[part] / total
            for sums in contention
            if part in sums and (total := sum(sums.get(name, 0) for name in whole)) > 0
        ]

    return least and msgspec.structs.replace(
        least,
        waited_fraction=max(quotients("waited_ns", "span_ns"), default=None),
        ran_fraction=min(quotients("ran_ns", "span_ns"), default=None),
        workers_waited_fraction=max(
            quotients("workers_waited_ns", "workers_waited_ns", "workers_ran_ns"), default=None
        ),
        workers_ran=max(quotients("workers_ran_ns", "span_ns"), default=None),
        kernel=max(quotients("kernel_ns", "span_ns"), default=None),
        throttled_fraction=max(quotients("throttled_periods", "quota_periods"), default=None),
    )


def _share(
    info: RunInfo,
    on_hosts: Mapping[str, int],
    claims: Mapping[tuple[str, int], int],
    cpus_on: Mapping[str, int],
) -> HostShare | None:
    every, mask, host = _number(info, "host_cpus"), _mask(info), host_of(info)
    ranks = _ranks_here(info, on_hosts)
    cpus = share_of_rank(_number(info, "cpu_count"), every, ranks)
    if cpus is None:
        return None
    if mask and on_hosts[host] == ranks:
        # Every rank of the host has said which CPUs it may run on: each of them is shared by those
        # that may, and a quota by all.  E.g. eight ranks that may all run on the same 16 of 64 CPUs
        # have 2 each, and so have eight with masks of two each.
        cpus = sum(1 / claims[host, cpu] for cpu in mask)
        if every is not None and every < cpus_on[host]:
            cpus = min(cpus, every / ranks)
    return HostShare(
        ranks=ranks,
        cpus_per_rank=cpus,
        threads=1 if info.device != "cpu" else _number(info, "threads") or 1,
        workers=_number(info, "num_workers") or 0,
    )


def _ranks_here(info: RunInfo, on_hosts: Mapping[str, int]) -> int:
    """Ranks on the host of this one: as the launcher said, else by the hosts' names.

    A rank whose host is not known, or that left no file, may be here: with too few workers nothing
    is lost that more cannot bring, with too many all ranks are.

    Args:
        info: Header of the rank.
        on_hosts: Ranks with a file, by host; empty for an unknown one.
    """
    here = host_of(info)
    others = sum(number for host, number in on_hosts.items() if here and host not in (here, ""))
    return _number(info, "local_world_size") or max(1, info.world_size - others)


def host_of(info: RunInfo) -> str:
    """Name of a rank's host; empty where it is not known."""
    return str(info.hardware.get("host") or "")


def _mask(info: RunInfo) -> frozenset[int]:
    return cpus_listed(str(info.hardware.get("cpu_mask") or ""))


def _number(info: RunInfo, name: str) -> int | None:
    value = info.config.get(name, info.hardware.get(name))
    return int(value) if isinstance(value, int | float) else None
