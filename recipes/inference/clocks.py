"""Clocks around one call: without waiting for the device, and first calls against later ones."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.reports import benchmark_lines
from recipes.cases.verdicts import needs_cuda, verdict
from recipes.inference.model import Size, batch_of, device, model_of
from recipes.inference.published import CLOCK
from trainperf.benchmark import benchmark_step
from trainperf.benchmark.calls import seconds_of, synchronised_clock
from trainperf.benchmark.steps import ratio_interval
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import duration, times


ROUNDS = 31
CALLS = 6


def clock_case(size: Size) -> Case:
    """How wrong a clock is that does not wait: both readings are of the same calls."""
    model, batch = model_of(size), batch_of(size).to(device())
    clock = synchronised_clock()
    launched: list[float] = []
    answered: list[float] = []
    with torch.inference_mode():
        for turn in range(ROUNDS + 3):
            begun = clock()
            model(batch)
            at_once, waited = time.perf_counter(), clock()
            if turn >= 3:
                launched.append(at_once - begun)
                answered.append(waited - begun)
        timed = benchmark_step(model, batch, repeat=ROUNDS)
    ratio, low, high = ratio_interval([a / b for a, b in zip(answered, launched, strict=True)])
    right = MeasuredRow(what="clock read when the device is done", value=median(answered))
    row = MeasuredRow(
        what="clock read at once",
        value=median(launched),
        ratio=ratio,
        low=low,
        high=high,
        against=right.what,
        rounds=ROUNDS,
    )
    judged = verdict(row, "faster")
    if device().type == "cpu":
        judged = needs_cuda(
            "on a CPU an operator has run when it returns, so that both clocks agree; a GPU is "
            "only given its work"
        )
    return Case(
        name="clock_without_waiting",
        title="A clock that does not wait",
        claim="A clock that is read when the call returns shows less time than the answer takes.",
        before=benchmark_lines(timed),
        before_note="no finding is about clocks; `trainperf.benchmark` waits for the device:",
        change=("torch.cuda.synchronize()  # or trainperf.benchmark, which waits for the device",),
        measured=(right, row),
        published=CLOCK,
        **judged,
    )


def first_calls(call: Callable[[Tensor], object], batch: Tensor) -> list[float]:
    """Seconds of the first calls, each until the device is done."""
    with torch.inference_mode():
        return [seconds_of(lambda: call(batch)) for _ in range(CALLS)]


def first_calls_table(calls: Sequence[tuple[str, Sequence[float]]]) -> Table:
    """Each call of some versions, and how many steady ones the first is worth."""
    rows = tuple(
        (name, *map(duration, took_s), times(took_s[0] / median(took_s[-3:])))
        for name, took_s in calls
    )
    return Table(
        title="Cold against steady",
        head=("", *(f"call {number}" for number in range(1, CALLS + 1)), "first / steady"),
        rows=rows,
        notes=(
            (
                "Steady is the median of the last three calls.  The first pays for allocation, "
                "choice of kernels and, where there is any, compilation: no average should have it."
            ),
        ),
    )
