"""Remedies for a slow loader: more workers, or the part of a batch that must get cheaper."""

import math
from dataclasses import dataclass, replace

from trainperf.analysis.rules.base import setting
from trainperf.analysis.rules.input.base import micro_batches, rest_s
from trainperf.analysis.rules.input.workers import (
    Staff,
    cpus_of_rank,
    model_threads,
    no_cpu_free,
    round_trip_s,
    staffing,
    why_no_more,
    workers_for,
    worth_a_worker,
)
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import Effort
from trainperf.core.formatting.units import count, duration, plural, size
from trainperf.core.loop_kind import LoopKind
from trainperf.core.phases import Phase
from trainperf.core.readings import STEP_MEAN_S, phase_reading


UNEVEN = 2.0
"""One batch in twenty takes at least so many times the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRemedy:
    """What to do about a loader, and what says so."""

    advice: str = "Fix the loader"
    evidence: tuple[str, ...]
    action: str
    effort: Effort = "minutes"
    making: float = 0.0
    """Share of the step that the workers it advises take to make its batches: they do not do away
    with that.  E.g. a batch of 20 ms before 2 ms of work: two workers make the step 10 ms, not 2.
    """
    part: str = ""
    """What the wait is mainly for, as it is called in code."""
    where: str = ""


def staffed(remedy: LoaderRemedy, staff: Staff, summary: Summary, making_s: float) -> LoaderRemedy:
    """The remedy, with the time that its workers take and the threads that they cost the model."""
    step_s = summary.value(STEP_MEAN_S)
    remedy = replace(remedy, making=making_s / staff.workers / step_s if step_s else 0.0)
    if staff.threads is None:
        return remedy
    threads, cpus = plural(model_threads(summary), "thread"), cpus_of_rank(summary) or 0
    return replace(
        remedy,
        evidence=(*remedy.evidence, f"the model computes with {threads} on {plural(cpus, 'CPU')}"),
        action=f"{remedy.action} with torch.set_num_threads({staff.threads}): workers need CPUs "
        "too, unless they only wait for a disk or a network",
    )


def unless_waiting(remedy: LoaderRemedy, summary: Summary, making_s: float) -> LoaderRemedy:
    """The remedy, and the workers that need no CPU where all of them are taken."""
    if not no_cpu_free(summary):
        return remedy
    workers = workers_for(making_s, rest_s(summary) or making_s)
    # Without the setting's name: what more workers usually gain says nothing of a cheaper sample.
    waiting = f"where that only waits for a disk or a network, {plural(workers, 'worker')} instead"
    return replace(remedy, action=f"{remedy.action}; {waiting}")


def by_anatomy(summary: Summary, anatomy: LoaderAnatomy, no_help: str) -> LoaderRemedy:
    """By what was timed: more workers while there are CPUs for them, else the part that costs.

    Args:
        summary: Of the run.
        anatomy: Of its loader.
        no_help: What says that workers were tried here and gain nothing; empty where nothing does.
    """
    remedy = _chosen(summary, anatomy, no_help)
    return replace(remedy, evidence=(*remedy.evidence, *_slower_here(summary, anatomy)))


def _chosen(summary: Summary, anatomy: LoaderAnatomy, no_help: str) -> LoaderRemedy:
    available_s = (rest_s(summary) or 0.0) / micro_batches(summary)
    waited_s = _waited_s(summary)
    workers, here_s = anatomy.workers, _here_s(anatomy)
    if workers and (anatomy.receiving_s or 0.0) > anatomy.making_s:
        return _no_workers(anatomy, summary)
    if workers and here_s > available_s and here_s >= anatomy.worker_s / workers:
        return _send_less(anatomy)
    if not workers and not worth_a_worker(summary, anatomy.making_s):
        trip = duration(round_trip_s(summary))
        return _cheaper(anatomy, f"getting one from a worker would still take about {trip}")
    if available_s and anatomy.workers_for(available_s) <= workers:
        # What is left then is what this process does, or batches that come late now and then.
        return _send_less(anatomy) if here_s > waited_s / 2 else _enough(anatomy, summary)
    making_s = anatomy.worker_s * micro_batches(summary)
    staff = None if no_help else staffing(summary, making_s)
    if staff is None:
        cheaper = _cheaper(anatomy, no_help or why_no_more(summary, making_s))
        return cheaper if no_help else unless_waiting(cheaper, summary, making_s)
    return staffed(
        _more_workers(anatomy, staff, available_s, summary.run.loop), staff, summary, making_s
    )


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


def _more_workers(
    anatomy: LoaderAnatomy, staff: Staff, available_s: float, loop: LoopKind
) -> LoaderRemedy:
    # Without workers nothing is prefetched; two batches of each are enough while batches are even.
    uneven = ", prefetch_factor=4" if _uneven(anatomy) else ""
    needed = anatomy.workers_for(available_s)
    needs = f"num_workers={anatomy.workers}; a batch every {duration(available_s)} needs {needed}"
    return LoaderRemedy(
        advice=f"Give the loader {plural(staff.workers, 'worker')}",
        evidence=(*parts(anatomy), needs),
        action=loop.data_loader(f"num_workers={staff.workers}, persistent_workers=True{uneven}"),
        part=_largest(anatomy),
        where=_where(anatomy),
    )


def _enough(anatomy: LoaderAnatomy, summary: Summary) -> LoaderRemedy:
    """There are workers enough by their times, and the step waits all the same."""
    cpus, prefetch = cpus_of_rank(summary), summary.run.loop.data_loader("prefetch_factor=8")
    if _uneven(anatomy):
        worst_s = anatomy.getitem.p95_s + anatomy.collate.p95_s
        return LoaderRemedy(
            advice="Prefetch more batches",
            evidence=(*parts(anatomy), f"but {duration(worst_s)} for one in twenty"),
            action=f"{prefetch}: more batches in store for the slow ones",
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


def _no_workers(anatomy: LoaderAnatomy, summary: Summary) -> LoaderRemedy:
    none = summary.run.loop.data_loader("num_workers=0")
    received, making = duration(anatomy.receiving_s or 0.0), duration(anatomy.making_s)
    why = f"{received} of them in the training process, which could make one in {making}"
    return LoaderRemedy(
        advice="Make the batches without workers",
        evidence=(*parts(anatomy), why),
        action=f"{none}, or send much less: smaller dtypes, fewer tensors",
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
