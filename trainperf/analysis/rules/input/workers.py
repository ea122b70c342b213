"""Workers that a loader can use: what a batch from one costs a step, and the CPUs for them."""

import math
import sys
from dataclasses import dataclass

from trainperf.analysis.rules.base import setting
from trainperf.analysis.rules.input.base import asleep_fraction, micro_batches, rest_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import CAUTION
from trainperf.core.formatting.units import plural
from trainperf.core.readings import STEP_MEAN_S


ROUND_TRIP_S, FIRST_TOUCH_BYTES_PER_S = 1e-3, 7e9
"""What a batch costs the step when a worker makes it, and the rate at which a model on the CPU
reads for the first time what is in shared memory.

A worker collates into shared memory, so the wait does not grow with the batch.  Recorded on two
cores of an AMD EPYC with torch 2.13: steps of 1.10 ms took 2.18 with `num_workers=1`; the wait for
batches of 1 kB, 1, 10 and 40 MB was 1.6, 1.9, 1.9 and 2.0 ms, and reading and releasing them took
0.1, 0.5, 1.9 and 7.2 ms (0.1, 0.1, 0.4 and 1.7 where no worker had made them).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staff:
    """Workers for a loader, and threads for a model that gives up some for them."""

    workers: int
    threads: int | None = None
    """`None` leaves them as they are."""
    step_s: float
    """Of a model that computes in proportion to its threads."""


def round_trip_s(summary: Summary) -> float:
    """What it costs a step to get a batch from a worker; by the anatomy where there is one.

    Of a model on a device the copy to it reads the batch, with a worker or without.
    """
    anatomy = summary.loader
    if anatomy is None:
        return ROUND_TRIP_S
    read = anatomy.batch_bytes if summary.run.device == "cpu" else 0.0
    return ROUND_TRIP_S + (anatomy.receiving_s or 0.0) + read / FIRST_TOUCH_BYTES_PER_S


def worth_a_worker(summary: Summary, making_s: float) -> bool:
    """Whether making a batch takes clearly longer than getting it from a worker."""
    return making_s >= 2 * round_trip_s(summary)


def cheaper_than_a_worker(summary: Summary, waited_s: float) -> bool:
    """Whether this process makes a batch sooner than a worker would hand it over.

    Args:
        summary: Of the run.
        waited_s: Time per step in the loader's `next()`.
    """
    alone = setting(summary, "num_workers") == 0
    return alone and waited_s / micro_batches(summary) < ROUND_TRIP_S


def cpus_of_rank(summary: Summary) -> int | None:
    """Whole CPUs for one rank, at least one: its share of its host; `None` if not known."""
    return None if summary.host is None else max(1, int(summary.host.cpus_per_rank))


MOSTLY_ASLEEP = 0.5
"""Of the time in the loader: from here on workers are limited by what they wait for, not by CPUs.
"""

WORKERS_COMPETE = 1 / 3
"""Share of the time that workers are ready to run from which on waiting for a CPU slows them."""


CROWDED = 0.5
"""Share of the time of steady steps from which on other processes count as always there."""

CPUS_IN_USE = 0.5
"""Share of a rank's CPUs that its thread and workers use, from which on these may be too many."""


def too_many_workers(summary: Summary) -> bool:
    """Whether workers were seen to wait for CPUs that a rank has too few of for them.

    Workers that mostly sleep, and wake together, wait for each other for a moment only: they are
    not too many where the rank leaves half of its CPUs idle.
    """
    host = summary.host
    if host is None or host.workers + 1 <= host.cpus_per_rank:
        return False
    if host.workers_ran is not None:
        used = host.workers_ran + (host.ran_fraction or 0.0)
        if used < CPUS_IN_USE * host.cpus_per_rank:
            return False
    return (host.workers_waited_fraction or 0.0) >= WORKERS_COMPETE


def model_threads(summary: Summary) -> int:
    """Threads that a model on the CPU computes with; 0 on a device, and where it is not known."""
    return int(setting(summary, "threads") or 0) if summary.run.device == "cpu" else 0


def workers_for(making_s: float, available_s: float) -> int:
    """Workers that make batches of *making_s* in a step that has *available_s* for them."""
    return max(1, math.ceil(round(making_s / available_s, 2)))


def staffing(summary: Summary, making_s: float) -> Staff | None:
    """The workers that make the step shortest, each on a CPU of its own.

    A model on the CPU may have to give up threads for them.  It is taken to compute in proportion
    to its threads, the worst case, and must gain even then.  E.g. two CPUs and two threads: with
    one worker beside one thread a batch of 12 ms before 8 ms of work makes a step of 16 ms instead
    of 20, and one of 3 ms before 17 a step of 34.  Recorded there: one worker beside two threads
    made a step of 17.5 ms take 21.7 ms, and beside one thread 15.8 ms.

    Workers whose batches are mostly waited for, as the loader in this process was seen to do, share
    CPUs: as many as their work and the model's leave room for.

    `None` where no more workers than there are gain anything, or where a cheaper sample probably
    gains more.

    Args:
        summary: Of the run.
        making_s: What the batches of a step take one worker to make.
    """
    step_s, available_s = summary.value(STEP_MEAN_S), rest_s(summary)
    if not step_s or available_s is None:
        return None
    staff = min(
        _options(summary, making_s, available_s), key=lambda option: option.step_s, default=None
    )
    if staff is None or staff.workers <= (setting(summary, "num_workers") or 0):
        return None
    saved_s = step_s - max(available_s, making_s / staff.workers)
    enough = saved_s >= CAUTION * (step_s - available_s)
    return staff if staff.step_s < step_s and enough else None


def why_no_more(summary: Summary, making_s: float) -> str:
    """Why there is no `staffing`."""
    cpus, threads = cpus_of_rank(summary) or 0, model_threads(summary)
    workers = int(setting(summary, "num_workers") or 0)
    on = f"on {plural(cpus, 'CPU')}"
    if no_cpu_free(summary):
        others = f" and the loader has {plural(workers, 'worker')}," if workers else ""
        computing = f"the model computes with {plural(threads, 'thread')}{others}"
        return f"no CPU is free for a worker: {computing} {on}"
    needed = workers_for(making_s, rest_s(summary) or making_s)
    return f"{plural(needed, 'worker')} would keep up, {on}"


def no_cpu_free(summary: Summary) -> bool:
    """Whether the threads of the model and the workers take all CPUs."""
    threads, cpus = model_threads(summary), cpus_of_rank(summary)
    workers = setting(summary, "num_workers") or 0
    return bool(threads) and cpus is not None and threads + workers >= cpus


def crowded_out(summary: Summary) -> float | None:
    """CPUs that other processes kept busy, where they leave none for a worker; else `None`.

    Judged where they did so for most of the run, of one rank: the thread that trains has one CPU,
    and less than half of another is left.
    """
    cpus, machine = cpus_of_rank(summary), summary.machine
    if cpus is None or machine is None or len(summary.run.ranks) > 1:
        return None
    lasting = [c for c in machine.causes if c.cause == "host shared" and c.fraction >= CROWDED]
    others = max((cause.values.get("others_cpus", 0.0) for cause in lasting), default=0.0)
    return others if others and cpus - others < 1.5 else None


def _options(summary: Summary, making_s: float, available_s: float) -> list[Staff]:
    """The best for each number of threads, the most threads first."""
    threads, cpus = model_threads(summary), cpus_of_rank(summary)
    if not threads or cpus is None:
        workers = min(workers_for(making_s, available_s), cpus or sys.maxsize)
        return [Staff(workers=workers, step_s=max(available_s, making_s / workers))]
    awake = 1.0 - asleep_fraction(summary)
    if awake <= 1.0 - MOSTLY_ASLEEP:
        busy_s = (available_s * min(threads, cpus) + making_s * awake) / cpus
        shortest_s = max(available_s, busy_s)
        workers = workers_for(making_s, shortest_s)
        return [Staff(workers=workers, step_s=max(shortest_s, making_s / workers))]
    options, computing = [], min(threads, cpus)
    for left in range(min(computing, cpus - 1), 0, -1):
        slower_s = available_s * computing / left
        workers = min(workers_for(making_s, slower_s), cpus - left)
        options.append(
            Staff(
                workers=workers,
                threads=left if left < threads else None,
                step_s=max(slower_s, making_s / workers),
            )
        )
    return options
