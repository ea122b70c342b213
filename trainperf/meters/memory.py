"""Memory: its peaks, its fragmentation, and its growth."""

from trainperf.core.stats.reductions import LargestLast
from trainperf.core.stats.trend import Trend
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Measure, MeterEntry, Scope, largest, total


def _apart(block: StepBlock, peak: str, reserved: str) -> LargestLast | None:
    """Latest difference of the two peaks."""
    rows = block.having(peak, reserved)
    if rows is None:
        return None
    apart = rows.values(reserved) - rows.values(peak)
    return LargestLast(float(rows.index[-1]), float(apart[-1]), len(rows))


def _growth(block: StepBlock) -> Trend | None:
    """Least values held after these steps."""
    columns = block.schema.columns
    # By what the run records, not by what these steps have: else two quantities were mixed.
    fact = "allocated_bytes" if "allocated_bytes" in columns else "owned_bytes"
    rows = block.having(fact, *{"cache_keys"}.intersection(columns))
    return (
        None if rows is None else Trend.of(rows.index, rows.values(fact), rows.fact("cache_keys"))
    )


METERS = (
    MeterEntry(
        name="memory_peak_bytes",
        unit="B",
        about="""Highest device memory held by tensors, in bytes, since the process started; largest
        rank.

        The peak is process-global and is not reset behind the user's back.

        Wrong where: earlier work of the same process had a higher peak.
        To confirm: `torch.cuda.max_memory_allocated()` in a fresh process.
        """,
        measure=Measure.MEMORY,
        better="lower",
        scope=Scope.ALL,
        needs=("peak_bytes",),
        statistic=largest,
    ),
    MeterEntry(
        name="memory_reserved_peak_bytes",
        unit="B",
        about="""Highest device memory held by the caching allocator, in bytes, since process start.

        Wrong where: it is taken for what the training needs: the allocator keeps what it got.
        To confirm: `memory_peak_bytes`.
        """,
        measure=Measure.MEMORY,
        better="lower",
        scope=Scope.ALL,
        needs=("reserved_peak_bytes",),
        statistic=largest,
    ),
    MeterEntry(
        name="fragmentation_bytes",
        unit="B",
        about="""Reserved minus allocated device memory at their peaks, in bytes: held but not used.

        Of the latest step that has both; largest rank.  An upper bound: the two peaks need not fall
        on the same moment.

        Wrong where: the two peaks fell at different moments.
        To confirm: `torch.cuda.memory_summary()`.
        """,
        measure=Measure.MEMORY,
        better="lower",
        scope=Scope.ALL,
        needs=("peak_bytes", "reserved_peak_bytes"),
        statistic=_apart,
    ),
    MeterEntry(
        name="resident_peak_bytes",
        unit="B",
        about="""Largest resident set of the training process seen, in bytes; CPU runs, sampled.

        Sampled, as often as it costs 0.1 % of the time, so a short peak can be missed.

        Wrong where: shared memory of loader workers is counted in it, or a short peak was missed.
        To confirm: `/proc/PID/status`, VmHWM.
        """,
        measure=Measure.MEMORY,
        better="lower",
        scope=Scope.ALL,
        needs=("resident_bytes",),
        statistic=largest,
    ),
    MeterEntry(
        name="memory_slope_bytes_per_step",
        unit="B",
        about="""What the memory held after a step grows by, in bytes per step; fastest rank.

        Device memory held by tensors, or on a CPU run the process's memory in use, without mapped
        files and, where glibc tells, without Python's own small objects.  Theil and Sen's slope of
        the least value in each stretch of the latter half of the steady steps, between steps with
        as many distinct shapes and compiled graphs so far: what fills up and stops has none, nor
        has a cache of shapes.  It is not the peak's growth.

        Wrong where: the run has only some hundreds of steps: caches still fill.
        To confirm: the same run several times as long.
        """,
        measure=Measure.MEMORY,
        better="lower",
        statistic=_growth,
    ),
    MeterEntry(
        name="alloc_retries",
        unit="1",
        about="""Allocations on the device that failed at first, over steady steps; rank with the
        most.

        PyTorch's caching allocator then waits for the device, gives its unused memory back and asks
        again (`num_alloc_retries`).  Counted between readings: those of the steps since the one
        before.

        Wrong where: they are those of the warm-up, which ends late.
        To confirm: `torch.cuda.memory_stats()["num_alloc_retries"]`.
        """,
        measure=Measure.MEMORY,
        better="lower",
        needs=("alloc_retries",),
        statistic=total,
    ),
    MeterEntry(
        name="device_allocs",
        unit="1",
        about="""How often the allocator asked the driver for memory, over steady steps; rank with
        the most.

        PyTorch's caching allocator does when nothing that it keeps fits (`num_device_alloc`, of
        CUDA `cudaMalloc`).  Counted between readings: those of the steps since the one before.

        Wrong where: they are those of the warm-up, which ends late.
        To confirm: `torch.cuda.memory_stats()["num_device_alloc"]`.
        """,
        measure=Measure.MEMORY,
        better="lower",
        needs=("device_allocs",),
        statistic=total,
    ),
    MeterEntry(
        name="alloc_failures",
        unit="1",
        about="""Allocations on the device that failed for good, over all steps; rank with the most.

        The fit went on: somebody has caught the error (`num_ooms`).

        Wrong where: somebody provokes them, as a search for the largest batch does.
        To confirm: `torch.cuda.memory_stats()["num_ooms"]`.
        """,
        measure=Measure.MEMORY,
        better="lower",
        scope=Scope.ALL,
        needs=("alloc_failures",),
        statistic=total,
    ),
)
