"""Batch sizes: how many requests a call should take, by the curve of requests per second."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recipes.cases.case import Case, Plot, PlotLine
from recipes.cases.measuring import paired
from recipes.cases.verdicts import verdict
from recipes.inference.model import Size, batch_of, device, model_of
from recipes.inference.published import BATCHING
from trainperf.benchmark import Sweep, sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """The curve as it is shown, and what it comes to."""

    case: Case
    plots: tuple[Plot, ...]


def batch_curve(shape: Size) -> BatchCurve:
    """The sweep over batch sizes, and its largest batch against calls of one request."""
    model = model_of(shape)

    def answer(batch: Tensor) -> Tensor:
        with torch.inference_mode():
            scores: Tensor = model(batch)
            return scores

    curve = sweep(answer, lambda number, _: batch_of(shape, number).to(device()), shape.batch_sizes)
    return BatchCurve(case=_case(shape, curve, answer), plots=_plots(curve))


def _plots(curve: Sweep) -> tuple[Plot, ...]:
    points = [point for point in curve.points if point.median_s is not None]
    rates = tuple((float(p.batch_size), p.per_s) for p in points if p.per_s is not None)
    waits = tuple((float(p.batch_size), p.median_s) for p in points if p.median_s is not None)
    return (
        Plot(
            title="Requests per second over the batch size",
            lines=(PlotLine(name="requests/s", points=rates),),
            across="requests per batch",
            up="requests/s",
            up_unit="1/s",
            log_across=True,
        ),
        Plot(
            title="Latency over the batch size",
            lines=(PlotLine(name="latency", points=waits),),
            across="requests per batch",
            up="latency of a batch",
            log_across=True,
            log_up=True,
        ),
    )


def _case(shape: Size, curve: Sweep, ask: Callable[[Tensor], Tensor]) -> Case:
    requests = batch_of(shape, max(shape.batch_sizes) // 2).to(device())
    singly, together = "one request per call", f"{len(requests)} requests per call"

    def one_by_one(batch: Tensor) -> Tensor:
        return torch.cat([ask(batch[place : place + 1]) for place in range(len(batch))])

    measured = paired({singly: one_by_one, together: ask}, requests, seconds=shape.seconds)
    return Case(
        name="batching",
        title="Requests in batches",
        claim="Requests that are answered in one call are answered faster than one by one.",
        before_note="no finding is about this; `trainperf.benchmark.sweep` decides it:",
        before=tuple(str(curve).splitlines()),
        change=("scores = model(torch.cat(requests))",),
        measured=measured,
        published=BATCHING,
        **verdict(measured[-1], "faster", "a single request keeps the processor busy already"),
    )
