"""What do all forms of a trace report show?  Its numbers put into rows and words, once."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, fine_share, plural, share, size
from trainperf.traces.findings import host_step_s, period_s
from trainperf.traces.results import RankTrace, TraceReport


NOT_MEASURED = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A name, its number, and what explains it."""

    name: str
    said: str
    note: str = ""
    inner: bool = False
    """Whether it is a part of the row above."""


def title(report: TraceReport) -> str:
    """What was analysed: the file or the ranks, the device, the steps."""
    first = report.ranks[0]
    what = first.file if len(report.ranks) == 1 else f"{len(report.ranks)} traces"
    numbers = sorted({step.step for rank in report.ranks for step in rank.steps})
    steps = plural(len(numbers), "step")
    if first.step_source == "ProfilerStep" and numbers:
        steps += f" ({numbers[0]}–{numbers[-1]})" if len(numbers) > 1 else f" ({numbers[0]})"
    rank = f"rank {first.rank}" if len(report.ranks) == 1 and first.rank is not None else ""
    device = first.device or ("GPU" if first.device_worked else "no device")
    return " · ".join(part for part in ("trainperf trace", what, rank, device, steps) if part)


def rows(rank: RankTrace) -> list[Row]:
    """Where the mean step of one rank goes."""
    out = [_step(rank)]
    out += _device(rank) if rank.totals.gpu_busy_fraction is not None else [_no_device(rank)]
    return [*out, *_communication(rank), *_copies(rank), *_host(rank)]


def _step(rank: RankTrace) -> Row:
    """The median, and what the shares are shares of where that is another time."""
    said, whole_s = duration(rank.totals.step_s), period_s(rank)
    mean = duration(host_step_s(rank))
    note = "median, on the host" + (f"; {mean} on average" if mean != said else "")
    longer = whole_s > (1 + LIMITS.worth) * host_step_s(rank)
    return Row(
        name="step",
        said=said,
        note=f"{note}; {duration(whole_s)} on the device" if longer else note,
    )


def _device(rank: RankTrace) -> list[Row]:
    totals = rank.totals
    busy = totals.gpu_busy_fraction or 0.0
    short = sum(step.short_kernels or 0 for step in rank.steps)
    kernels = sum(step.kernels or 0 for step in rank.steps)
    few = f", {share(short / kernels)} of them below 10 µs" if kernels else ""
    tensor = _tensor_cores(rank)
    return [
        Row(
            name="GPU busy",
            said=fine_share(busy),
            note=f"{duration(totals.gpu_busy_s or 0.0)} a step; of the span from the first to the "
            "last work that the steps launched",
        ),
        Row(
            name="computing",
            said=fine_share(totals.compute_fraction or 0.0),
            note=tensor,
            inner=True,
        ),
        Row(name="GPU idle", said=fine_share(1.0 - busy)),
        _idle("data wait", totals.idle_data_wait_fraction, _loader(rank)),
        _idle(
            "host-bound",
            totals.idle_host_bound_fraction,
            f"{count(round(totals.kernels or 0.0))} kernels a step{few}",
        ),
        _idle("synchronising", totals.idle_sync_fraction, _syncs(rank)),
        _idle("other", totals.idle_other_fraction, "the next work had been launched"),
    ]


def _idle(name: str, fraction: float | None, note: str) -> Row:
    return Row(name=name, said=fine_share(fraction or 0.0), note=note, inner=True)


def _no_device(rank: RankTrace) -> Row:
    return Row(name="GPU", said=NOT_MEASURED, note=rank.reasons.get("gpu_busy_s", "not measured"))


def _loader(rank: RankTrace) -> str:
    waited_s, lost_s = rank.totals.data_wait_s or 0.0, rank.totals.data_wait_exposed_s or 0.0
    if not waited_s:
        return ""
    return f"{duration(waited_s)} a step in the loader, {duration(lost_s)} with the GPU idle"


def _syncs(rank: RankTrace) -> str:
    calls, items = rank.totals.sync_calls or 0.0, rank.totals.item_calls or 0.0
    if not calls and not items:
        return ""
    waited_s = _mean([step.sync_s for step in rank.steps]) or 0.0
    return f"the host waits {count(calls)} × a step, {duration(waited_s)}; {count(items)} .item()"


def _tensor_cores(rank: RankTrace) -> str:
    known = [step.tensor_core_fraction for step in rank.steps]
    told = [one for one in known if one is not None]
    if not told:
        return ""
    return f"{share(sum(told) / len(told))} in kernels that sound of tensor cores"


def _communication(rank: RankTrace) -> list[Row]:
    totals = rank.totals
    if not totals.comm_s:
        return []
    out = [Row(name="communication", said=f"{duration(totals.comm_s)} a step")]
    if totals.comm_exposed_s is not None:
        hidden = share(totals.comm_overlap_fraction or 0.0)
        said = f"{duration(totals.comm_exposed_s)} a step"
        out.append(Row(name="exposed", said=said, note=f"{hidden} hidden by computing", inner=True))
    else:
        out[0] = Row(name="communication", said=out[0].said, note=_exposure_unknown(rank))
    tails = [step.allreduce_tail_s for step in rank.steps if step.allreduce_tail_s is not None]
    if tails:
        early = [step.allreduce_early_s or 0.0 for step in rank.steps]
        note = f"the last one ended {duration(min(early))} before backward" if min(early) else ""
        said = f"{duration(totals.allreduce_tail_s or 0.0)} a step"
        out.append(Row(name="all-reduce tail", said=said, note=note, inner=True))
    return out


def _exposure_unknown(rank: RankTrace) -> str:
    why = rank.reasons.get("comm_exposed_s", "not measured")
    return f"on the host; exposed: {why}" if why else "on the host"


def _copies(rank: RankTrace) -> list[Row]:
    copied_s = rank.totals.h2d_s
    if not copied_s:
        return []
    moved = [step.h2d_bytes for step in rank.steps if step.h2d_bytes is not None]
    much = f"{size(sum(moved) / len(moved))} a step, " if moved else ""
    hidden = share(rank.totals.h2d_overlap_fraction or 0.0)
    return [
        Row(
            name="host to device",
            said=f"{duration(copied_s)} a step",
            note=f"{much}{hidden} hidden by computing",
        )
    ]


def _host(rank: RankTrace) -> list[Row]:
    parts = [
        (name, _mean([getattr(step, field) for step in rank.steps]))
        for name, field in (
            ("forward", "forward_s"),
            ("backward", "backward_s"),
            ("optimizer", "optimizer_s"),
        )
    ]
    known = [f"{name} {duration(value)}" for name, value in parts if value is not None]
    said = f"{duration(rank.totals.cpu_op_s or 0.0)} a step"
    out = [Row(name="host", said=said, note="; ".join(("in operators", *known)))]
    hole_s = _mean([step.hole_s for step in rank.steps])
    if hole_s is not None:
        nobody = "neither an operator, a device call nor the device" if rank.device_worked else ""
        note = nobody or "neither an operator nor a device call"
        out.append(Row(name="nothing runs", said=f"{duration(hole_s)} a step", note=note))
    if not rank.device_worked and rank.totals.data_wait_s:
        waited = f"{duration(rank.totals.data_wait_s)} a step"
        out.append(Row(name="data wait", said=waited))
    if rank.memory_peak_bytes is not None:
        by = f"made by {rank.memory_peak_operator}" if rank.memory_peak_operator else ""
        out.append(Row(name="memory peak", said=size(rank.memory_peak_bytes), note=by))
    return out


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
