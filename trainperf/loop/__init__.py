"""Measure a plain PyTorch loop: the same measurements, files and report as under Lightning.

from trainperf.loop import LoopMonitor

with LoopMonitor("runs/a") as monitor:
    for batch in monitor.batches(loader):
        loss = train_on(batch)
        monitor.end_step(loss)
"""

from trainperf.loop.monitor import LoopMonitor
from trainperf.loop.monitored_loader import MonitoredLoader
from trainperf.loop.options import FitOptions
from trainperf.recording.early_lines import EARLY_LINES


__all__ = ["FitOptions", "LoopMonitor", "MonitoredLoader"]

EARLY_LINES.start("trainperf")  # what a script does before its fit: every door comes by here
