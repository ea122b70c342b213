"""For a Lightning `Trainer`: attach one callback, get the answer.

from trainperf.lightning import TrainPerf

Trainer(callbacks=[TrainPerf()]).fit(model, loader)
"""

from trainperf.lightning.callback import (
    AllReduceTailMonitor,
    DataWaitMonitor,
    GradScalerMonitor,
    H2DMonitor,
    MemoryMonitor,
    StepTimeMonitor,
    TokenThroughputMonitor,
    TrainPerf,
)
from trainperf.lightning.profiler import ScheduledProfiler


__all__ = [
    "AllReduceTailMonitor",
    "DataWaitMonitor",
    "GradScalerMonitor",
    "H2DMonitor",
    "MemoryMonitor",
    "ScheduledProfiler",
    "StepTimeMonitor",
    "TokenThroughputMonitor",
    "TrainPerf",
]
