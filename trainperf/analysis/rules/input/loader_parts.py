"""Which part of making a batch costs the step its time, and what helps against that?"""

import math
from dataclasses import dataclass, replace

from trainperf.analysis.rules.base import setting, value
from trainperf.analysis.rules.input.loading import micro_batches, rest_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import Effort
from trainperf.core.formatting.units import count, duration, plural, size
from trainperf.core.phases import Phase


UNEVEN = 2.0
"""One batch in twenty takes at least so many times the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do about a loader, and what says so."""

    advice: str = "Fix the loader"
    evidence: tuple[str, ...]
    action: str
    effort: Effort = "minutes"
    part: str = ""
    """What the wait is mainly for, as it is called in code."""
    where: str = ""


def by_anatomy(summary: Summary, anatomy: LoaderAnatomy) -> Remedy:
    """By what was timed: more workers while there are CPUs for them, else the part that costs."""
    remedy = _chosen(summary, anatomy)
    return replace(remedy, evidence=(*remedy.evidence, *_slower_here(summary, anatomy)))


def _chosen(summary: Summary, anatomy: LoaderAnatomy) -> Remedy:
    available_s = (rest_s(summary) or 0.0) / micro_batches(summary)
    waited_s = _waited_s(summary)
    workers, cpus = anatomy.workers, setting(summary, "cpu_count")
    here_s = _here_s(anatomy)
    if workers and (anatomy.receiving_s or 0.0) > anatomy.making_s:
        return _no_workers(anatomy)
    if workers and here_s > available_s and here_s >= anatomy.worker_s / workers:
        return _send_less(anatomy)
    if not workers and here_s > anatomy.making_s / 2:
        return _cheaper(
            anatomy, f"out of a worker it would still take {duration(here_s)} to receive one"
        )
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
    said = [f"a batch takes {duration(anatomy.making_s)} to make{alone}: {where}"]
    if anatomy.workers and anatomy.transport is not None:
        said.append(
            f"{duration(anatomy.transport.mean_s)} to come from its worker: "
            f"{size(anatomy.batch_bytes)} in {_tensors(anatomy)}"
        )
    if anatomy.pinning is not None:
        said.append(f"{duration(anatomy.pinning.mean_s)} to pin")
    return tuple(said)


def _waited_s(summary: Summary) -> float:
    """For one batch, on the host."""
    step_s = value(summary, f"phase_{Phase.DATA_WAIT.label}_s") or 0.0
    return step_s / micro_batches(summary)


def _slower_here(summary: Summary, anatomy: LoaderAnatomy) -> tuple[str, ...]:
    """Where the training process takes much longer for a batch than one of its own does."""
    waited_s, threads = _waited_s(summary), setting(summary, "threads")
    if anatomy.workers or not anatomy.timed_workers or waited_s < UNEVEN * anatomy.making_s:
        return ()
    beside = f", which computes with {plural(int(threads), 'thread')}" if threads else ""
    return (f"{duration(waited_s)} in the training process{beside}",)


def _here_s(anatomy: LoaderAnatomy) -> float:
    """What a batch takes of the training process, or of its thread that pins."""
    pinning_s = anatomy.pinning.mean_s if anatomy.pinning is not None else 0.0
    return (anatomy.receiving_s or 0.0) + pinning_s


def _more_workers(anatomy: LoaderAnatomy, needed: int, available_s: float) -> Remedy:
    # Without workers nothing is prefetched; two batches of each are enough while batches are even.
    uneven = ", prefetch_factor=4" if _uneven(anatomy) else ""
    had = f"num_workers={anatomy.workers}"
    return Remedy(
        advice=f"Give the loader {plural(needed, 'worker')}",
        evidence=(
            *parts(anatomy),
            f"{had}; a batch every {duration(available_s)} needs {needed}",
        ),
        action=f"DataLoader(num_workers={needed}, persistent_workers=True{uneven})",
        part=_largest(anatomy),
        where=_where(anatomy),
    )


def _enough(anatomy: LoaderAnatomy, cpus: float | None) -> Remedy:
    """There are workers enough by their times, and the step waits all the same."""
    if _uneven(anatomy):
        worst_s = anatomy.getitem.p95_s + anatomy.collate.p95_s
        return Remedy(
            advice="Prefetch more batches",
            evidence=(*parts(anatomy), f"but {duration(worst_s)} for one in twenty"),
            action="DataLoader(prefetch_factor=8): more batches in store for the slow ones",
            part=_largest(anatomy),
            where=_where(anatomy),
        )
    on = f" for {count(cpus)} CPUs" if cpus is not None else ""
    return _cheaper(anatomy, f"{plural(anatomy.workers, 'worker')} would keep up, but compete{on}")


def _cheaper(anatomy: LoaderAnatomy, why: str) -> Remedy:
    part = _largest(anatomy)
    if part == "collate_fn":
        action = "let collate_fn do less: one torch.stack a field, no loop over elements"
    else:
        sample_s = anatomy.getitem.mean_s / max(1.0, anatomy.samples)
        action = f"cache or preprocess what {part} computes: {duration(sample_s)} a sample"
    return Remedy(
        advice=f"Make {part} cheaper",
        evidence=(*parts(anatomy), why),
        action=action,
        effort="hours",
        part=part,
        where=_where(anatomy),
    )


def _no_workers(anatomy: LoaderAnatomy) -> Remedy:
    received, made = duration(anatomy.receiving_s or 0.0), duration(anatomy.making_s)
    return Remedy(
        advice="Make the batches without workers",
        evidence=(
            *parts(anatomy),
            f"{received} of them in the training process, which could make one in {made}",
        ),
        action="DataLoader(num_workers=0), or send much less: smaller dtypes, fewer tensors",
        part="transport",
    )


def _send_less(anatomy: LoaderAnatomy) -> Remedy:
    pinning_s = anatomy.pinning.mean_s if anatomy.pinning is not None else 0.0
    receiving_s = anatomy.receiving_s or 0.0
    if pinning_s > receiving_s:
        part, said = "pinning", f"{duration(pinning_s)} of them in the thread that pins"
    else:
        part, said = "transport", f"{duration(receiving_s)} of them in the training process"
    return Remedy(
        advice="Send less from the workers",
        evidence=(*parts(anatomy), f"{said}: more workers do not help"),
        action="send smaller dtypes, e.g. uint8 until the device, and fewer tensors a batch",
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
    worst_s = max(anatomy.getitem.p95_s, anatomy.collate.p95_s)
    return worst_s > UNEVEN * anatomy.making_s


def _getitem(anatomy: LoaderAnatomy) -> str:
    return "__getitem__" if anatomy.kind == "map" else "__iter__"


def _tensors(anatomy: LoaderAnatomy) -> str:
    return plural(math.ceil(anatomy.tensors), "tensor")
