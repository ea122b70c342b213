"""Traces of ten steps of 100 ms, planted: what a capture of a device shows."""

from typing import Any

from trainperf.traces.results import (
    Operator,
    RankTrace,
    Straggler,
    TraceReport,
    TraceStep,
    TraceTotals,
)


def rank_of(rank: int = 0, **given: Any) -> RankTrace:
    """A device that is busy for 90 of 100 ms, but for what is given."""
    step = TraceStep(step=1, step_s=0.1, device_span_s=0.09, gpu_busy_s=0.09, short_kernels=50)
    usual = {"gpu_busy_fraction": 1.0, "compute_fraction": 0.5, "kernels": 100.0, **given}
    beside = {name: usual.pop(name) for name in ("sync_sites", "collectives") if name in usual}
    totals = TraceTotals(steps=10, step_s=0.1, **usual)
    operators = (Operator(name="aten::mm", calls=1, self_device_s=0.45, self_cpu_s=0.1),)
    return RankTrace(
        file="x", rank=rank, steps=(step,) * 10, totals=totals, top_operators=operators, **beside
    )


def report_of(*ranks: RankTrace, stragglers: tuple[Straggler, ...] = ()) -> TraceReport:
    """Of all of them."""
    return TraceReport(ranks=ranks, stragglers=stragglers)
