"""Cost of the loader, its parts and the remedies: shared by the rules of `input`."""

import math
from dataclasses import dataclass, replace

import msgspec

from trainperf.analysis.rules.base import phase_fraction, setting, worst
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import LIMITS, Effort
from trainperf.core.formatting.units import count, duration, plural, size
from trainperf.core.phases import Phase
from trainperf.core.readings import (
    DATA_STALL_FRACTION,
    H2D_BYTES,
    H2D_FRACTION,
    H2D_TENSORS,
    HOST_BOUND_FRACTION,
    STEP_MEAN_S,
    phase_reading,
)


MANY_TENSORS = 16
"""In a batch: from here on handling them stands out against what is in them."""

SMALL_TENSOR_BYTES = 1 << 18
"""A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""


def lost_to_loader(summary: Summary) -> float | None:
    """Share of the step that is lost: what the device stalls where that is known, else the wait.

    `None` without enough steady steps.
    """
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    if waited is None:
        return None
    stalled = worst(summary, DATA_STALL_FRACTION)
    hidden = stalled is not None and summary.run.device != "cpu"
    return min(stalled or 0.0, waited) if hidden else waited


def rest_s(summary: Summary) -> float | None:
    """The step without what is lost to the loader: the time there is for a batch."""
    lost, step_s = lost_to_loader(summary), summary.value(STEP_MEAN_S)
    if lost is None or not step_s:
        return None
    return step_s * max(1.0 - lost, 1e-3)


def keeping_up(summary: Summary) -> Summary:
    """The summary, in which the anatomy of the loader says how many workers keep up."""
    anatomy, available_s = summary.loader, rest_s(summary)
    if anatomy is None or available_s is None:
        return summary
    # A step asks for a batch of every micro-batch.
    needed = anatomy.workers_for(available_s / micro_batches(summary))
    return msgspec.structs.replace(
        summary, loader=msgspec.structs.replace(anatomy, workers_needed=needed)
    )


def micro_batches(summary: Summary) -> int:
    """Batches of a step, by the configuration; one where it does not say."""
    number = summary.run.config.get("accumulate_grad_batches")
    return number if isinstance(number, int) and number > 0 else 1


def small_tensors(anatomy: LoaderAnatomy) -> bool:
    """Whether a batch is many small tensors, and handling them is all that it costs.

    A dataset that does more for a sample than to put its tensors together has another fault.
    """
    tensors = anatomy.tensors
    large = tensors < MANY_TENSORS or anatomy.batch_bytes >= tensors * SMALL_TENSOR_BYTES
    if large or anatomy.tensor_s is None:
        return False
    # Twelve times the measured minimum per small tensor: beyond that the dataset does real work.
    return anatomy.making_s <= 12 * anatomy.tensor_s * tensors * max(1.0, anatomy.samples)


def small_tensors_wait(summary: Summary) -> bool:
    """Whether the step waits for a loader whose batches are many small tensors."""
    lost = lost_to_loader(summary)
    waits = lost is not None and lost >= LIMITS.notable
    return waits and summary.loader is not None and small_tensors(summary.loader)


def moved(summary: Summary) -> float | None:
    """Share of the step that the batch's way to the device costs at most; `None` if unknown.

    The device's time in the copies.  Where the device waits for the host anyway, a copy that holds
    the host up costs what it holds it up.
    """
    host, device = phase_fraction(summary, Phase.H2D), worst(summary, H2D_FRACTION)
    if host is None or device is None:
        return host
    bound = summary.value(HOST_BOUND_FRACTION) or 0.0
    return max(host, device) if bound >= LIMITS.host_bound else device


def small_copies(summary: Summary) -> bool:
    """Whether the way to the device is taken by many small tensors, one copy each."""
    lost = moved(summary)
    tensors, copied = summary.value(H2D_TENSORS), summary.value(H2D_BYTES)
    if lost is None or lost < LIMITS.notable or tensors is None or copied is None:
        return False
    many = tensors >= MANY_TENSORS * micro_batches(summary)
    return many and copied < tensors * SMALL_TENSOR_BYTES


ROUND_TRIP_S, FIRST_TOUCH_BYTES_PER_S = 1e-3, 7e9
"""What a batch costs the step when a worker makes it, and the rate at which a model on the CPU
reads for the first time what is in shared memory.

A worker collates into shared memory, so the wait does not grow with the batch.  Recorded on two
cores of an AMD EPYC with torch 2.13: steps of 1.10 ms took 2.18 with `num_workers=1`; the wait for
batches of 1 kB, 1, 10 and 40 MB was 1.6, 1.9, 1.9 and 2.0 ms, and reading and releasing them took
0.1, 0.5, 1.9 and 7.2 ms (0.1, 0.1, 0.4 and 1.7 where no worker had made them).
"""

UNEVEN = 2.0
"""One batch in twenty takes at least so many times the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRemedy:
    """What to do about a loader, and what says so."""

    advice: str = "Fix the loader"
    evidence: tuple[str, ...]
    action: str
    effort: Effort = "minutes"
    workers: int | None = None
    """That it advises; `None` where it does not."""
    part: str = ""
    """What the wait is mainly for, as it is called in code."""
    where: str = ""


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


def cpus_of_rank(summary: Summary) -> int | None:
    """CPUs for one rank: those it may run on, and its share of its machine's; `None` if not known.

    Not divided where the run does not say how many ranks are on the machine.  Ranks that were
    launched together on some CPUs of a machine are taken to have all of them.
    """
    usable = setting(summary, "cpu_count")
    every, ranks = setting(summary, "host_cpus"), setting(summary, "local_world_size")
    if usable is None or every is None or not ranks:
        return None if usable is None else int(usable)
    return max(1, int(min(usable, every // ranks)))


def threads_left(summary: Summary, workers: int) -> int | None:
    """Threads of a model on the CPU that leave each worker a CPU of its own.

    `None` where there are CPUs enough for both, or where it is not known.
    """
    threads, cpus = setting(summary, "threads"), cpus_of_rank(summary)
    if summary.run.device != "cpu" or not threads or not cpus or threads + workers <= cpus:
        return None
    left = max(1, int(cpus) - workers)
    return left if left < threads else None


def sharing(summary: Summary, remedy: LoaderRemedy) -> LoaderRemedy:
    """The remedy; where its workers would take CPUs from the model, with fewer threads for that.

    Recorded on two CPUs: one worker with a model of two threads made a step of 17.5 ms take
    21.7 ms, and with a model of one thread 15.8 ms.
    """
    left = None if remedy.workers is None else threads_left(summary, remedy.workers)
    if left is None:
        return remedy
    threads = int(setting(summary, "threads") or 0)
    why = f"the model computes with {plural(threads, 'thread')}: none of the CPUs is free"
    return replace(
        remedy,
        evidence=(*remedy.evidence, why),
        action=f"{remedy.action} with torch.set_num_threads({left}): workers need CPUs too, unless "
        "they only wait for a disk or a network",
    )


def by_anatomy(summary: Summary, anatomy: LoaderAnatomy) -> LoaderRemedy:
    """By what was timed: more workers while there are CPUs for them, else the part that costs."""
    remedy = _chosen(summary, anatomy)
    slower = replace(remedy, evidence=(*remedy.evidence, *_slower_here(summary, anatomy)))
    return sharing(summary, slower)


def _chosen(summary: Summary, anatomy: LoaderAnatomy) -> LoaderRemedy:
    available_s = (rest_s(summary) or 0.0) / micro_batches(summary)
    waited_s = _waited_s(summary)
    workers, cpus = anatomy.workers, cpus_of_rank(summary)
    here_s = _here_s(anatomy)
    if workers and (anatomy.receiving_s or 0.0) > anatomy.making_s:
        return _no_workers(anatomy)
    if workers and here_s > available_s and here_s >= anatomy.worker_s / workers:
        return _send_less(anatomy)
    if not workers and not worth_a_worker(summary, anatomy.making_s):
        trip = duration(round_trip_s(summary))
        return _cheaper(anatomy, f"getting one from a worker would still take about {trip}")
    needed = anatomy.workers_for(available_s) if available_s else workers + 1
    if needed <= workers:
        # What is left then is what this process does, or batches that come late now and then.
        return _send_less(anatomy) if here_s > waited_s / 2 else _enough(anatomy, cpus)
    if cpus is None or needed <= cpus:
        return _more_workers(anatomy, needed, available_s)
    return _cheaper(anatomy, f"{plural(needed, 'worker')} would keep up, on {count(cpus)} CPUs")


def parts(anatomy: LoaderAnatomy) -> tuple[str, ...]:
    """What a batch costs, part by part."""
    get, collate = anatomy.getitem.mean_s, anatomy.collate.mean_s
    where = f"{duration(get)} in {_getitem(anatomy)}, {duration(collate)} in collate_fn"
    alone = "" if anatomy.workers or not anatomy.timed_workers else " in a process of its own"
    facts = [f"a batch takes {duration(anatomy.making_s)} to make{alone}: {where}"]
    if anatomy.workers and anatomy.transport is not None:
        tensors = plural(math.ceil(anatomy.tensors), "tensor")
        facts.append(
            f"{duration(anatomy.transport.mean_s)} to arrive from its worker: "
            f"{size(anatomy.batch_bytes)} in {tensors}"
        )
    if anatomy.pinning is not None:
        facts.append(f"{duration(anatomy.pinning.mean_s)} to pin")
    return tuple(facts)


def _waited_s(summary: Summary) -> float:
    """For one batch, on the host."""
    return (summary.value(phase_reading(Phase.DATA_WAIT.label)) or 0.0) / micro_batches(summary)


def _slower_here(summary: Summary, anatomy: LoaderAnatomy) -> tuple[str, ...]:
    """Where the training process takes much longer for a batch than one of its own does."""
    waited_s, threads = _waited_s(summary), setting(summary, "threads")
    if anatomy.workers or not anatomy.timed_workers or waited_s < UNEVEN * anatomy.making_s:
        return ()
    computing = f", which computes with {plural(int(threads), 'thread')}" if threads else ""
    return (f"{duration(waited_s)} in the training process{computing}",)


def _here_s(anatomy: LoaderAnatomy) -> float:
    """What a batch takes of the training process, or of its thread that pins."""
    pinning_s = anatomy.pinning.mean_s if anatomy.pinning is not None else 0.0
    return (anatomy.receiving_s or 0.0) + pinning_s


def _more_workers(anatomy: LoaderAnatomy, needed: int, available_s: float) -> LoaderRemedy:
    # Without workers nothing is prefetched; two batches of each are enough while batches are even.
    uneven = ", prefetch_factor=4" if _uneven(anatomy) else ""
    needs = f"num_workers={anatomy.workers}; a batch every {duration(available_s)} needs {needed}"
    return LoaderRemedy(
        advice=f"Give the loader {plural(needed, 'worker')}",
        evidence=(*parts(anatomy), needs),
        action=f"DataLoader(num_workers={needed}, persistent_workers=True{uneven})",
        workers=needed,
        part=_largest(anatomy),
        where=_where(anatomy),
    )


def _enough(anatomy: LoaderAnatomy, cpus: int | None) -> LoaderRemedy:
    """There are workers enough by their times, and the step waits all the same."""
    if _uneven(anatomy):
        worst_s = anatomy.getitem.p95_s + anatomy.collate.p95_s
        return LoaderRemedy(
            advice="Prefetch more batches",
            evidence=(*parts(anatomy), f"but {duration(worst_s)} for one in twenty"),
            action="DataLoader(prefetch_factor=8): more batches in store for the slow ones",
            part=_largest(anatomy),
            where=_where(anatomy),
        )
    on = f" for {count(cpus)} CPUs" if cpus is not None else ""
    return _cheaper(anatomy, f"{plural(anatomy.workers, 'worker')} would keep up, but compete{on}")


def _cheaper(anatomy: LoaderAnatomy, why: str) -> LoaderRemedy:
    part = _largest(anatomy)
    if part == "collate_fn":
        action = "let collate_fn do less: one torch.stack per field, no loop over elements"
    else:
        sample_s = anatomy.getitem.mean_s / max(1.0, anatomy.samples)
        action = f"cache or preprocess what {part} computes: {duration(sample_s)} per sample"
    return LoaderRemedy(
        advice=f"Make {part} cheaper",
        evidence=(*parts(anatomy), why),
        action=action,
        effort="hours",
        part=part,
        where=_where(anatomy),
    )


def _no_workers(anatomy: LoaderAnatomy) -> LoaderRemedy:
    received, making = duration(anatomy.receiving_s or 0.0), duration(anatomy.making_s)
    why = f"{received} of them in the training process, which could make one in {making}"
    return LoaderRemedy(
        advice="Make the batches without workers",
        evidence=(*parts(anatomy), why),
        action="DataLoader(num_workers=0), or send much less: smaller dtypes, fewer tensors",
        part="transport",
    )


def _send_less(anatomy: LoaderAnatomy) -> LoaderRemedy:
    pinning_s = anatomy.pinning.mean_s if anatomy.pinning is not None else 0.0
    receiving_s = anatomy.receiving_s or 0.0
    if pinning_s > receiving_s:
        part, why = "pinning", f"{duration(pinning_s)} of them in the thread that pins"
    else:
        part, why = "transport", f"{duration(receiving_s)} of them in the training process"
    return LoaderRemedy(
        advice="Send less from the workers",
        evidence=(*parts(anatomy), f"{why}: more workers do not help"),
        action="send smaller dtypes, e.g. uint8 until the device, and fewer tensors per batch",
        effort="hours",
        part=part,
    )


def _largest(anatomy: LoaderAnatomy) -> str:
    """Of what a worker does."""
    if anatomy.workers and (anatomy.packing_s or 0.0) > anatomy.making_s:
        return "transport"
    by_collate = anatomy.collate.mean_s > anatomy.getitem.mean_s
    return "collate_fn" if by_collate else _getitem(anatomy)


def _where(anatomy: LoaderAnatomy) -> str:
    lines = {"collate_fn": anatomy.collate_line, _getitem(anatomy): anatomy.getitem_line}
    return lines.get(_largest(anatomy)) or ""


def _uneven(anatomy: LoaderAnatomy) -> bool:
    return max(anatomy.getitem.p95_s, anatomy.collate.p95_s) > UNEVEN * anatomy.making_s


def _getitem(anatomy: LoaderAnatomy) -> str:
    return "__getitem__" if anatomy.kind == "map" else "__iter__"
