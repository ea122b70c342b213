"""What `scripts.bench.overhead` attaches to a Trainer: ours, Lightning's own, TraceML."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from lightning.pytorch.callbacks import Callback, DeviceStatsMonitor, ThroughputMonitor

from trainperf import lightning as ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something to attach to a training loop."""

    name: str
    callbacks: Callable[[Path], list[Callback]] = field(default=lambda _: [])
    profiler: str | None = None
    needs_logger: bool = False
    is_ours: bool = False
    launcher: tuple[str, ...] = ()
    """Arguments of Python before the folder for its figures and the script, where it wants to start
    the process itself."""


NOTHING = Contender(name="A/A (nothing attached)")

LOOP_MONITOR = Contender(name="LoopMonitor", is_ours=True)

OUTSIDE = Contender(
    name="trainperf run", is_ours=True, launcher=("-m", "trainperf", "run", "--out")
)
"""Nothing in the loop: the process is started so, in `scripts.bench.overhead_processes` alone."""

TIMESTAMPS = Contender(name="timestamps only")
"""The same places in the loop, with a reading of the clock in each and nothing else."""

OURS = (
    Contender(
        name="TrainPerf", callbacks=lambda path: [ours.TrainPerf(dirpath=str(path))], is_ours=True
    ),
    Contender(name="StepTimeMonitor", callbacks=lambda _: [ours.StepTimeMonitor()], is_ours=True),
    Contender(name="DataWaitMonitor", callbacks=lambda _: [ours.DataWaitMonitor()], is_ours=True),
    Contender(name="H2DMonitor", callbacks=lambda _: [ours.H2DMonitor()], is_ours=True),
    Contender(
        name="GradScalerMonitor", callbacks=lambda _: [ours.GradScalerMonitor()], is_ours=True
    ),
    Contender(
        name="TokenThroughputMonitor",
        callbacks=lambda _: [ours.TokenThroughputMonitor()],
        is_ours=True,
    ),
    Contender(
        name="AllReduceTailMonitor", callbacks=lambda _: [ours.AllReduceTailMonitor()], is_ours=True
    ),
    Contender(name="MemoryMonitor", callbacks=lambda _: [ours.MemoryMonitor()], is_ours=True),
)

LIGHTNINGS = (
    Contender(
        name="Lightning ThroughputMonitor",
        callbacks=lambda _: [ThroughputMonitor(batch_size_fn=len)],
        needs_logger=True,
    ),
    Contender(
        name="Lightning DeviceStatsMonitor",
        callbacks=lambda _: [DeviceStatsMonitor()],
        needs_logger=True,
    ),
    Contender(name='Trainer(profiler="simple")', profiler="simple"),
)


def for_trainer(*, has_logger: bool) -> list[Contender]:
    """Everything that can be attached to a Trainer, nothing first."""
    everything = [*OURS, *LIGHTNINGS, *_traceml()]
    return [NOTHING, *[each for each in everything if has_logger or not each.needs_logger]]


def _traceml() -> list[Contender]:
    """TraceML as its guide has it, where it is installed: its callback, under `traceml run`.

    It patches torch for the rest of the process: where one process takes turns with itself, what
    its patches cost the blocks without it is missing from its ratio.
    """
    if find_spec("traceml_ai") is None:
        return []
    integration = importlib.import_module("traceml_ai.integrations.lightning")

    def attach(_scratch: Path) -> list[Callback]:
        integration.init()
        return [integration.TraceMLCallback()]

    beside_python = Path(sys.executable).with_name("traceml")
    launcher = (str(beside_python), "run", "--no-save-training-output", "--logs-dir")
    return [Contender(name="TraceML", callbacks=attach, launcher=launcher)]
