"""The law of the step: what a step would take if some of its seconds were gone.

**Host and device.** The training thread's seconds follow each other: a second of it that goes is a
second of the step, where no device and no loader is what the step waits for.  With a device the
step is at least the seconds in which the device works.  Where the device is behind the host, a
second that the host saves is a second of the step only while the device waited for the host: what
that is a capture tells, and without one *about* is not known.

**Loader.** Without workers the training thread makes the batches: waiting is making.  *W* workers
make a batch in `making / W`, while the step before is computed; what the training process does to
take it over (`transport`) is hidden by nothing:

    step = max(rest, making / W) + transport

**CPUs.** On a CPU the model's threads, the workers, other threads and other processes share the
cores: *threads + workers ≤ CPUs*, else each takes longer: a CPU second of a worker is then one
that the model's threads lack.  Where the kernel moves them about it is shared by all CPUs; where it
does not, the step waits for the thread that lacks most, of *W* workers for the *W*-th part.  A
model that gives up threads computes longer, at most in proportion, at least not at all: *about*
takes the middle of both.

**Other threads.** A thread that vanishes with a cause gives back what it computed.  While it runs
it may hold the interpreter and one of the model's cores, so that the rest of the step waits for
each of its CPU seconds up to `HELD_UP` seconds.

**Kernel.** The kernel hands out memory page by page as it is touched, which may be in another phase
than the one that asked for it.  Where the host computes, all that it does in the rest of the step,
its mean share of the model's threads, may go with a cause.

**Caches.** What works or sleeps amid a model's computing, or a pause, leaves cold caches: without
it the rest is faster as well, each time by what fetching `REFILL_BYTES` takes, at most by what the
cause takes itself, and a call by at most `COLD` times.

**Fit.** fit = steps + pauses; script = what comes before the fit + fit.

*About* is what a change brings by this law when it realises the share of the seconds that it
usually does (`changes`).  *At most* has all of them at their ideal: gone, or the roofline of the
work that has to stay; caches warm, threads gone, the kernel idle, and no loader or CPU in the way.
Where nothing tells the share there is no *about*; a change that alters more than its cause claims,
such as compiling the whole model, has no *at most*.  Where model and loader share a CPU's cores and
caches both are less certain than beside a device: a loader's own work slows the model while it
runs, which no record tells apart.

Worked example: of a step of 60 ms a callback takes 24 ms and hands values to a thread that computes
6 ms.  *At most* 60 / (60 - 24 - 2 - 1.5 × 6) = 2.4 times as fast; a change that does it every tenth
step realises 0.9 of it: *about* 60 / (60 - 0.9 × (24 + 6)) = 1.82.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.core.findings import COLD, LIMITS, REFILL_S


ROUND_TRIP_S = 1e-3
"""What a batch costs the step when a worker makes it.  A worker collates into shared memory, so the
wait does not grow with the batch.  Two cores of an AMD EPYC with torch 2.13: steps of 1.10 ms took
2.18 with `num_workers=1`, whether batches had 1 kB or 40 MB."""

HELD_UP = 1.5
"""What a second of another thread costs the rest of the step at most: it may have the interpreter
and wait for a processor.  Three walkthroughs without histograms lost 0.9 to 1.4."""


def gone_s(account: StepAccount, claim: Claim) -> float:
    """Seconds of a step that a cause takes, by its own record."""
    return claim.removes_s + sum(account.threads_s.get(name, 0.0) for name in claim.threads)


def _waited_for_s(account: StepAccount, claim: Claim) -> float | None:
    """Those of them that the step waits for; `None` where it is not known which."""
    device = account.device
    of_host = claim.owns_s and not (claim.regions or claim.device or claim.shrinks)
    if device is None or account.host_decides or not of_host:
        return gone_s(account, claim)
    # A faster host would have given it work in these.
    waits_s = [waited_s for waited_s in (device.host_s, device.value_s) if waited_s is not None]
    return min(gone_s(account, claim), sum(waits_s)) if waits_s else None


def at_most(account: StepAccount, claim: Claim) -> float | None:
    """How many times faster the step or the fit gets at most; `None` where nothing would be left.

    Args:
        account: All of it, with what others claim.
        claim: What the cause removes.
    """
    whole_s, removes_s = account.whole_s(claim.scope), claim.at_most_s
    if removes_s is None:
        removes_s = sum(claim.pauses_s.values()) if claim.pauses_s else claim.removes_s
    for slot in {region.slot for region in claim.regions}:
        left_s = account.spent(slot) - claim.owns_s.get(slot, 0.0)
        removes_s += max(0.0, min(account.unexplained_s.get(slot, 0.0), left_s))
    rest_s = whole_s - removes_s
    after_s = rest_s - HELD_UP * sum(account.threads_s.get(name, 0.0) for name in claim.threads)
    if account.host_decides:
        after_s -= min(removes_s, rest_s * (1 - 1 / COLD), claim.interruptions * REFILL_S)
    if account.device is None and not claim.pauses_s:
        works = account.share(account.kernel_s / account.model_threads)
        after_s -= rest_s * min(works, LIMITS.mostly)
    return _ratio(whole_s, max(after_s, rest_s / 10))


def about(account: StepAccount, claim: Claim, realises: float) -> float | None:
    """How many times faster the step or the fit probably gets.

    Args:
        account: All of it.
        claim: What the cause removes.
        realises: Share of that which the change usually saves.
    """
    if claim.pauses_s:
        whole_s = account.whole_s(claim.scope)
        return _ratio(whole_s, whole_s - realises * sum(claim.pauses_s.values()))
    waited_s = _waited_for_s(account, claim)
    if waited_s is None:
        return None
    after_s = account.step_s - realises * waited_s
    return _ratio(account.step_s, max(after_s, _floor_s(account, claim), account.step_s / 100))


def _floor_s(account: StepAccount, claim: Claim) -> float:
    """What the step takes at least, whatever the training thread does without a cause."""
    busy_s = 0.0 if account.device is None else account.device.busy_s or 0.0
    # Work of the device's own that goes with the cause is no longer what it is busy with.
    busy_s -= claim.removes_s if claim.regions else claim.device.get("communication_s", 0.0)
    loader = account.loader
    if loader is None or not loader.workers or "data_wait" in claim.owns_s:
        return busy_s
    return max(busy_s, loader.computes_s / loader.workers)


def _ratio(before_s: float, after_s: float) -> float | None:
    return before_s / after_s if after_s > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """Workers for a loader, and threads for a model that gives up some for them."""

    workers: int
    threads: int | None
    """`None` leaves them as they are."""
    step_s: float
    """By the law, a model in the middle of what fewer threads may cost it."""
    worst_s: float
    """The same of a model that computes in proportion to its threads."""


def worker_plan(account: StepAccount) -> WorkerPlan | None:
    """The number of workers with which the step is shortest; `None` where none is known to help."""
    return min(
        (plan for plan in _plans(account) if plan.worst_s < account.step_s),
        key=lambda plan: (plan.step_s, plan.workers),
        default=None,
    )


def _plans(account: StepAccount) -> Iterator[WorkerPlan]:
    loader, rest_s = account.loader, account.step_s - account.spent("data_wait")
    if loader is None or loader.workers is None or loader.idle:
        return
    cpus = math.inf if account.cpus is None else max(1.0, account.cpus - account.others_cpus)
    awake = 1.0 - loader.asleep
    computing = account.model_threads if account.device is None else 1
    for left in range(computing, 0, -1):
        # A worker that mostly waits needs a CPU for the rest of its time only.
        most = (cpus - left) / awake if awake > 0 else math.inf
        slower = max(1.0, min(computing, cpus) / left)
        needed = max(1, math.ceil(round(loader.making_s / max(rest_s, 1e-9), 2)))
        workers = int(min(needed, most))
        if workers > loader.workers:
            made_s = loader.making_s / workers
            yield WorkerPlan(
                workers=workers,
                threads=left if left < account.model_threads else None,
                step_s=max(rest_s * (1 + slower) / 2, made_s) + loader.transport_s,
                worst_s=max(rest_s * slower, made_s) + loader.transport_s,
            )


def workers_take_s(account: StepAccount) -> float:
    """What the workers' own computing takes from a model that needs all CPUs; 0 beside a device."""
    loader, cpus = account.loader, account.cpus
    if loader is None or not loader.workers or account.device is not None or not cpus:
        return 0.0
    crowded = account.model_threads + loader.workers > cpus
    parts = 1 / cpus + 1 / min(loader.workers, cpus)
    return min(loader.computes_s * parts / 2, account.step_s / 2) if crowded else 0.0


def workers_hold_up_s(account: StepAccount) -> float:
    """The most that they may: each second that one computes may be one that the step waits."""
    loader = account.loader
    return min(loader.computes_s, account.step_s) if loader and workers_take_s(account) else 0.0
