"""Assertion that a step stays within a memory limit."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from trainperf.benchmark.memory import peak_memory
from trainperf.benchmark.results import PeakMemory
from trainperf.core.errors import ConfigError, SmokeFailure
from trainperf.core.formatting.units import size


Batch = TypeVar("Batch")


def assert_peak_memory_under(
    step: Callable[[Batch], object],
    batch: Batch,
    limit_bytes: int,
    *,
    warmup: int = 1,
    above_start: bool = False,
) -> PeakMemory:
    """Fail if one call of *step(batch)*, after *warmup* calls, takes *limit_bytes* or more.

    The peak is everything the process holds at that moment: on CUDA in the allocator, on a CPU in
    the resident set, with the interpreter and its libraries.  With *above_start* it is only what
    the call adds to that.  On a CPU a step of a few milliseconds cannot be judged: `ConfigError`.
    """
    __tracebackhide__ = True
    for _ in range(warmup):
        step(batch)
    memory = peak_memory(partial(step, batch))
    used_bytes = memory.above_start_bytes if above_start else memory.peak_bytes
    if used_bytes is None or memory.peak_bytes is None or memory.above_start_bytes is None:
        raise ConfigError(f"peak memory not measured: {memory.reason}; use a larger batch")
    if used_bytes >= limit_bytes:
        what = "above what was held before" if above_start else "at the peak"
        raise SmokeFailure(
            f"the step took {size(used_bytes)} {what}, not below {size(limit_bytes)} "
            f"({memory.source}: peak {size(memory.peak_bytes)}, of which "
            f"{size(memory.above_start_bytes)} was added by the step).",
            "look for tensors that outlive the step (assert_no_graph_held), for a larger batch or "
            "sequence than meant, and at activation checkpointing or a smaller micro-batch; or "
            "raise the limit on purpose.",
        )
    return memory
