"""Timing of calls, device included: the harness of benchmarks and smoke tests.

The clock is that of `torch.utils.benchmark`: it waits for the accelerator before it is read, so a
duration is from an idle device to an idle device.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils.benchmark import Measurement, TaskSpec
from torch.utils.benchmark.utils.timer import timer as synchronised_clock


__all__ = ["Clock", "graphs_built", "median_and_iqr", "quiet", "seconds_of", "synchronised_clock"]

Clock = Callable[[], float]
"""Seconds on a monotonic clock that waits for the device before it is read."""


def seconds_of(call: Callable[[], object], calls: int, clock: Clock) -> float:
    """Mean seconds of one of *calls* calls, between two readings of a synchronised clock.

    What the calls return is dropped at once, so that no graph of one lives during the next.
    """
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection inside, as in `timeit`: a pause is not the step's own time."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def median_and_iqr(times_s: tuple[float, ...]) -> tuple[float, float]:
    """Median and interquartile range as `torch.utils.benchmark` computes them, in seconds."""
    spec = TaskSpec(stmt="step(batch)", setup="pass", num_threads=torch.get_num_threads())
    measured = Measurement(number_per_run=1, raw_times=list(times_s), task_spec=spec)
    return float(measured.median), float(measured.iqr)


def graphs_built() -> int | None:
    """Graphs that `torch.compile` has built in this process, by torch's own private statistics.

    0 before the compiler was first used, which this does not import; `None` where torch does not
    count.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return 0
    counters = getattr(dynamo, "counters", None)
    return None if counters is None else int(counters["stats"].get("unique_graphs", 0))
