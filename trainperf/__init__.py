"""Find where every millisecond of a PyTorch training step goes, and what to change first.

Import what you need:

* `trainperf.lightning`: `TrainPerf`, the callback for a Lightning `Trainer`
* `trainperf.loop`: `LoopMonitor`, for a plain PyTorch loop
* `trainperf.benchmark`: time one step by itself
* `trainperf.smoke`: assertions about speed for your own tests
* `trainperf.remedies`: packing, bucketing, prefetching, dynamic batching
* `trainperf.testing`: fake clocks and records, to test a meter or a rule of your own

On the command line: `trainperf --help`.  This package itself imports nothing heavy.
"""

__version__ = "0.1.0"
