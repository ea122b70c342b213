"""Benchmarks of a training step: its time, and whether another version is faster and still right.

    from trainperf.benchmark import benchmark_step, compare

    print(benchmark_step(train_step, batch))
    print(compare({"eager": step, "compiled": compiled_step}, batch))

For training steps and inference functions alike; see `docs/concepts/benchmarks.md`.
"""

from trainperf.benchmark.calls import PeakMemory
from trainperf.benchmark.steps import (
    BenchmarkComparison,
    StepBenchmark,
    Versus,
    benchmark_step,
    compare,
)
from trainperf.benchmark.sweep import Sweep, SweepPoint, sweep


__all__ = [
    "BenchmarkComparison",
    "PeakMemory",
    "StepBenchmark",
    "Sweep",
    "SweepPoint",
    "Versus",
    "benchmark_step",
    "compare",
    "sweep",
]
