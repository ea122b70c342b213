"""What do the smaller charts show, and why does one have nothing to show?"""

from collections.abc import Callable

import msgspec
import numpy as np

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import plural
from trainperf.core.readings import (
    ALLREDUCE_SKEW_S,
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    DATA_WAIT_FRACTION,
    EFFECTIVE_TOKENS_PER_S,
    H2D_S,
    LOSS,
    MEMORY_PEAK_BYTES,
    OVERFLOW_RATE,
    RESIDENT_PEAK_BYTES,
    SAMPLES_PER_S,
)
from trainperf.reports.series.chart import Chart, Line, drawn, filled, listed, shares, why
from trainperf.reports.series.decimate import Groups, Span, over


MOST_RANKS = 8
"""Lines in one chart that can still be told apart."""


def charts(groups: Groups, summary: Summary) -> list[Chart]:
    """All of them, in the order in which they are shown."""
    return [chart(groups, summary) for chart in _CHARTS]


def _device(groups: Groups, summary: Summary) -> Chart:
    names = {
        "data_stall_ns": ("idle for lack of data", DATA_STALL_FRACTION),
        "h2d_device_ns": ("copy to the device", H2D_S),
        "tail_ns": ("all-reduce tail", ALLREDUCE_TAIL_S),
    }
    lines = [drawn(groups, name, label) for name, (label, _) in names.items()]
    there = [each for each in lines if each is not None]
    missing = [
        f"{label}: {why(summary, reading)}"
        for (label, reading), each in zip(names.values(), lines, strict=True)
        if each is None
    ]
    cpu = summary.run.device == "cpu"
    reason = "not applicable (CPU): host and device are the same" if cpu else "; ".join(missing)
    return Chart(
        key="device",
        title="Device time",
        what="Time between events on the device's own stream, by what it was for.",
        unit="s",
        lines=there,
        absent=None if there else reason,
        note="; ".join(missing) if there else "",
    )


def _data_wait(groups: Groups, summary: Summary) -> Chart:
    waited = shares(groups, ("waited", "walls", "wait_fraction"), "host waits for the loader")
    lines = [waited]
    if summary.run.device != "cpu":
        names = ("stalled", "stalled_walls", "stall_fraction")
        lines.append(shares(groups, names, "device idle because of it"))
    return filled(
        lines,
        Chart(
            key="data_wait",
            title="Data wait",
            what="Share of the step time of all ranks.",
            unit="1",
            lines=[],
            absent=why(summary, DATA_WAIT_FRACTION),
        ),
    )


def _tokens(groups: Groups, summary: Summary) -> Chart:
    return filled(
        [
            _rate(groups, "tokens_effective", "effective"),
            _rate(groups, "tokens_padded", "with padding", spread=False),
        ],
        Chart(
            key="tokens",
            title="Effective tokens per second",
            what="Tokens of all ranks that the mask keeps, over the slowest rank's time.",
            unit="1/s",
            lines=[],
            absent=why(summary, EFFECTIVE_TOKENS_PER_S),
            note=summary.run.notes.get("tokens", ""),
        ),
    )


def _samples(groups: Groups, summary: Summary) -> Chart:
    return filled(
        [_rate(groups, "samples", "samples")],
        Chart(
            key="samples",
            title="Samples per second",
            what="Samples of all ranks over the slowest rank's time.",
            unit="1/s",
            lines=[],
            absent=why(summary, SAMPLES_PER_S),
        ),
    )


def _overflow(groups: Groups, summary: Summary) -> Chart:
    attempts, skipped = groups.span("attempts"), groups.span("overflows")
    lines = []
    if attempts is not None and skipped is not None:
        # A single update is skipped or not: only a share that goes on adding up can be read.
        so_far = over(np.cumsum(skipped.sum), np.cumsum(attempts.sum))
        lines = [
            Line(key="overflow", label="updates skipped", values=listed(so_far)),
            drawn(groups, "loss_scale", "loss scale", spread=False, second=True),
        ]
    return filled(
        lines,
        Chart(
            key="overflow",
            title="GradScaler overflow",
            what="Share of the updates attempted since the first step shown that were skipped; "
            "on the right the loss scale.",
            unit="1",
            lines=[],
            absent=why(summary, OVERFLOW_RATE),
        ),
    )


def _tail(groups: Groups, summary: Summary) -> Chart:
    return _per_rank(
        groups,
        summary,
        Chart(
            key="tail",
            title="All-reduce tail",
            what="From the last gradient being ready to backward having returned, by rank.",
            unit="s",
            lines=[],
            absent=why(summary, ALLREDUCE_TAIL_S),
        ),
    )


def _skew(groups: Groups, summary: Summary) -> Chart:
    return _per_rank(
        groups,
        summary,
        Chart(
            key="skew",
            title="Skew at the all-reduce",
            what="How much longer a rank waits than the one that comes last (which is at 0).",
            unit="s",
            lines=[],
            absent=why(summary, ALLREDUCE_SKEW_S),
        ),
    )


def _memory(groups: Groups, summary: Summary) -> Chart:
    names = {
        "peak_bytes": "peak since the process began",
        "reserved_bytes": "held by the allocator",
        "allocated_bytes": "held by tensors",
        "resident_bytes": "resident set of the process",
    }
    reading = RESIDENT_PEAK_BYTES if summary.run.device == "cpu" else MEMORY_PEAK_BYTES
    return filled(
        [drawn(groups, name, label) for name, label in names.items()],
        Chart(
            key="memory",
            title="Memory",
            what="After the step, on the rank with the most.",
            unit="B",
            lines=[],
            absent=why(summary, reading),
        ),
    )


def _loss(groups: Groups, summary: Summary) -> Chart:
    reading = summary.readings[LOSS]
    return filled(
        [drawn(groups, "loss", "loss")],
        Chart(
            key="loss",
            title="Loss",
            what="Of the last micro-batch of a step, mean over ranks.",
            unit="",
            lines=[],
            absent=why(summary, LOSS),
            note=reading.reason or "",
        ),
    )


_CHARTS: tuple[Callable[[Groups, Summary], Chart], ...] = (
    _device,
    _data_wait,
    _tokens,
    _samples,
    _overflow,
    _tail,
    _skew,
    _memory,
    _loss,
)


def _rate(groups: Groups, name: str, label: str, *, spread: bool = True) -> Line | None:
    amount, single = groups.span(name), groups.span(f"{name}_per_s")
    walls = [groups.span(each) for each in groups.names if each.startswith(f"{name}:wall:")]
    known = [wall.sum for wall in walls if wall is not None]
    if amount is None or single is None or not known:
        return None
    return Line(
        key=name,
        label=label,
        values=listed(
            np.where(amount.count > 0, over(amount.sum, np.maximum.reduce(known)), np.nan)
        ),
        low=listed(single.low) if spread else None,
        high=listed(single.high) if spread else None,
    )


def _per_rank(groups: Groups, summary: Summary, empty: Chart) -> Chart:
    spans = {
        rank: span
        for place, rank in enumerate(summary.run.ranks)
        if (span := groups.span(f"{empty.key}:{place}")) is not None
    }
    chosen = sorted(spans, key=lambda rank: _mean(spans[rank]))
    if len(chosen) > MOST_RANKS:
        half = MOST_RANKS // 2
        note = f"{MOST_RANKS} of {plural(len(chosen), 'rank')}: those that wait least and most"
        chosen = [*chosen[:half], *chosen[-half:]]
        empty = msgspec.structs.replace(empty, note=note)
    lines = [
        Line(key=f"rank {rank}", label=f"rank {rank}", values=listed(spans[rank].mean()))
        for rank in sorted(chosen)
    ]
    return filled(lines, empty)


def _mean(span: Span) -> float:
    return float(span.sum.sum() / span.count.sum())
