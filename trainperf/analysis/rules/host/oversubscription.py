"""Rule about more threads and workers than a rank has CPUs."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.input.base import lost_to_loader
from trainperf.analysis.rules.input.workers import too_many_workers
from trainperf.analysis.summary.schema import HostShare, Summary
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import count, plural, share


def oversubscription(evidence: Evidence) -> Finding | None:
    """Ranks, their threads and their loaders' workers are more than the host's CPUs, and wait.

    Counted are the CPUs that a rank may use: by masks, quotas and the ranks it shares them with.
    More on paper is no fault: the training thread, or workers that steps wait for, must be seen to
    lack a CPU.  The bound is the time that the thread waits for one, or what steps lose to a loader
    whose workers do; of several ranks on a CPU all that the thread does not run, since it waits for
    the others, which wait for a CPU.

    Wrong where: other jobs of the same host take the CPUs, which no count of this run shows.
    To confirm: `trainperf prove` with fewer threads or workers per rank.
    """
    summary, host = evidence.summary, evidence.summary.host
    if host is None or host.demand <= host.cpus_per_rank:
        return None
    if summary.run.steady_steps < LIMITS.steps:
        return None
    waited = host.waited_fraction or 0.0
    by_loader = (lost_to_loader(summary) or 0.0) if too_many_workers(summary) else 0.0
    if max(waited, by_loader) < LIMITS.notable:
        return None
    shared = host.ranks > 1 and summary.run.device == "cpu" and waited >= LIMITS.notable
    slack = 1 - (host.ran_fraction or 0.0) if shared else 0.0
    advice, action = _change(host, summary)
    return Finding(
        id="oversubscription",
        title=f"{_demand(host)} on {_supply(host)}: {_consequence(host, waited, by_loader)}",
        advice=advice,
        evidence=_counted(host),
        action=action,
        effort="minutes" if host.cpus_per_rank >= 1 else "hours",
        confirm="in the next run a training thread has no CPU for less than a tenth of the time",
        **costs(min(max(waited, by_loader, slack), 0.99)),
    )


def _demand(host: HostShare) -> str:
    parts = [plural(host.threads, "thread")]
    if host.workers:
        parts.append(plural(host.workers, "worker"))
    each = " and ".join(parts)
    return each if host.ranks == 1 else f"{plural(host.ranks, 'rank')} with {each} each"


def _supply(host: HostShare) -> str:
    cpus = host.cpus_per_rank * host.ranks
    return plural(round(cpus), "CPU") if cpus >= 1 else f"{cpus:.2g} CPUs"


def _consequence(host: HostShare, waited: float, by_loader: float) -> str:
    if by_loader > waited:
        ready = share(host.workers_waited_fraction or 0.0)
        return f"workers wait for a CPU {ready} of the time that they could work"
    return f"a training thread waits for one {share(waited)} of the time"


def _counted(host: HostShare) -> tuple[str, ...]:
    facts = []
    if host.waited_fraction is not None:
        facts.append(f"the training thread had no CPU {share(host.waited_fraction)} of the time")
    if host.workers and host.workers_waited_fraction is not None:
        facts.append(f"workers had none {share(host.workers_waited_fraction)} of theirs")
    if host.throttled_fraction:
        facts.append(f"the quota was used up in {share(host.throttled_fraction)} of its periods")
    if host.preemptions_per_s:
        often = count(round(host.preemptions_per_s))
        facts.append(f"{often} involuntary context switches per second")
    return tuple(facts)


def _change(host: HostShare, summary: Summary) -> tuple[str, str]:
    """What to do first: fewer workers, then fewer threads; where even one is too many, CPUs."""
    own = int(host.cpus_per_rank)
    if own < 1:
        few = plural(max(1, round(host.cpus_per_rank * host.ranks)), "rank")
        action = (
            f"ask for {host.ranks} CPUs or more (--cpus-per-task, the container's quota, the mask)"
            f", or start {few}; OMP_NUM_THREADS=1 and num_workers=0 until then"
        )
        return "Give every rank a CPU", action
    if summary.run.device == "cpu":
        workers = min(host.workers, own // 2)
        threads = min(host.threads, max(1, own - workers))
    else:
        # As many workers as CPUs leave none to the thread that launches.
        workers = own if host.workers > own else own - 1
        threads = host.threads
    parts = []
    if workers < host.workers:
        keep = ", persistent_workers=True" if workers else ""
        parts.append(f"DataLoader(num_workers={workers}{keep})")
    if threads < host.threads:
        parts.append(f"torch.set_num_threads({threads})")
    fewer = "workers" if workers < host.workers else "threads"
    of_rank = "" if host.ranks == 1 else " on every rank"
    return f"Use fewer {fewer}", f"{' and '.join(parts)}{of_rank}, for {plural(own, 'CPU')}"
