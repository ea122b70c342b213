"""One call of a step: how long it takes, its peak memory, and what it returned.

The harness of benchmarks and smoke tests.  `timeit` calls, with a clock that waits for every
device with tensors before it is read (that of `torch.utils.benchmark` waits for the current one
alone): a duration is from idle devices to idle devices, and garbage is not collected meanwhile.

On CUDA peak memory is the allocator's own.  On a CPU it is the resident set of the process at its
highest, which Linux counts and lets a process reset; other systems do not.

A result is the loss if there is one (a scalar, the first element of a tuple, the entry `loss` of a
mapping, the attribute `loss`), else the tensor an inference function returned.
"""

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from timeit import Timer, default_timer

import msgspec
import numpy as np
import torch
from torch.utils.benchmark import Measurement, TaskSpec

from trainperf.accelerators import (
    Ability,
    busy_accelerators,
    default_accelerator,
    keep_random_state,
)


__all__ = ["Clock", "measurement", "seconds_of", "synchronised_clock"]

Clock = Callable[[], float]
"""Seconds on a monotonic clock that waits for the device before it is read."""


def synchronised_clock() -> Clock:
    """A clock that waits for the current device, and for each that holds tensors now."""
    devices = busy_accelerators()

    def read_s() -> float:
        for device in devices:
            device.synchronize()
        return default_timer()

    return read_s


def seconds_of(call: Callable[[], object], calls: int = 1, clock: Clock | None = None) -> float:
    """Mean seconds of one of *calls* calls, between two readings of a synchronised clock.

    What the calls return is dropped at once, so that no graph of one lives during the next.
    """
    return Timer(call, timer=clock or synchronised_clock()).timeit(calls) / calls


def measurement(times_s: Sequence[float]) -> Measurement:
    """Some durations as `torch.utils.benchmark` has them: it tells median and spread."""
    spec = TaskSpec(stmt="step(batch)", setup="pass", num_threads=torch.get_num_threads())
    return Measurement(number_per_run=1, raw_times=list(times_s), task_spec=spec)


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory during one call after the warm-up, outside the timed ones."""

    source: str
    """`CUDA allocator`, or `resident set` of the whole process."""
    peak_bytes: int | None = None
    above_start_bytes: int | None = None
    """Memory that the call added.  On a CPU, memory that the process kept from an earlier call is
    reused without showing here."""
    reason: str = ""
    """Why nothing was measured."""


def peak_memory(call: Callable[[], object]) -> PeakMemory:
    """Peak memory during one call, of the current device; resets the peaks that are counted.

    Calls twice where there is an accelerator and the call does not use it.
    """
    accelerator = default_accelerator()
    if Ability.STATISTICS not in accelerator.lacks():
        accelerator.synchronize()
        accelerator.forget_peak()
        before = accelerator.memory_stats().get("allocated_bytes.all.current", 0)
        call()
        accelerator.synchronize()
        if peak := accelerator.peak_bytes():
            source = f"{accelerator.type.upper()} allocator"
            return PeakMemory(source=source, peak_bytes=peak, above_start_bytes=peak - before)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _resident_bytes()
    except OSError as error:
        return PeakMemory(source="resident set", reason=f"the system counts none: {error}")
    call()
    peak = _resident_bytes()
    return PeakMemory(source="resident set", peak_bytes=peak, above_start_bytes=peak - before)


def _resident_bytes() -> int:
    """The resident set at its highest since that was reset."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def result_of(returned: object) -> torch.Tensor | None:
    """The loss or the output in what a step *returned*, on the host in float64, if it has either.

    A loss has no dimensions.
    """
    result = _pick(returned)
    if isinstance(result, bool) or not isinstance(result, torch.Tensor | int | float):
        return None
    values = torch.as_tensor(result, dtype=torch.float64, device="cpu").detach().clone()
    return values.reshape(()) if values.numel() == 1 else values


def difference(result: torch.Tensor | None, other: torch.Tensor | None) -> float | None:
    """Largest difference relative to the largest value; `None` for different shapes, or for none.

    Infinite where one of the two is not finite: NaN agrees with nothing.
    """
    if result is None or other is None or result.shape != other.shape:
        return None
    both = torch.stack([result.flatten(), other.flatten()])
    if not bool(torch.isfinite(both).all()):
        return math.inf
    size = float(both.abs().max()) if both.numel() else 0.0
    return float((both[0] - both[1]).abs().max()) / size if size else 0.0


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, Python, NumPy and torch (all devices) draw from *seed*; their state is restored."""
    put_back = keep_random_state()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 the generator that the user's code draws from
    torch.manual_seed(seed)
    try:
        yield
    finally:
        put_back()


def _pick(returned: object) -> object:
    if isinstance(returned, Mapping):
        return _pick(returned.get("loss", next(iter(returned.values()), None)))
    if isinstance(returned, list | tuple):
        return _pick(returned[0]) if returned else None
    loss = None if isinstance(returned, torch.Tensor) else getattr(returned, "loss", None)
    return returned if loss is None else loss
