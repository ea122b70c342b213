"""How long does one step take, and is another version of it faster and still right?

    from trainperf.benchmark import benchmark_step, compare

    print(benchmark_step(train_step, batch))
    print(compare({"eager": step, "compiled": compiled_step}, batch))

For training steps and inference functions alike; see `docs/benchmark.md`.
"""

from trainperf.benchmark.results import Comparison, PeakMemory, StepBenchmark, Versus
from trainperf.benchmark.steps import benchmark_step, compare


__all__ = ["Comparison", "PeakMemory", "StepBenchmark", "Versus", "benchmark_step", "compare"]
