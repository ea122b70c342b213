"""Callbacks for Lightning and Fabric, under `trainperf run` and its kin alone.

They ask the entry points of `plugins/launched` for every Trainer and Fabric; no other process has
them.  Nothing is raised: a training that cannot be measured goes on unmeasured.
"""

from trainperf.core.launch_environment import LaunchOptions, LaunchSignal
from trainperf.recording.guard import Guard


def callbacks(options: str = "") -> list[object]:
    """What Lightning attaches to a new Trainer: a `TrainPerf`, or nothing without *options*.

    Where the script has a `TrainPerf` of its own, the attached one measures nothing.
    """
    if not options:
        return []
    return Guard().run("trainperf run", lambda: [_callback(LaunchOptions.parse(options))]) or []


def fabric_callbacks(options: str) -> list[object]:
    """What Fabric calls when it has set a module up."""
    return Guard().run("trainperf run", _fabric_callbacks) or [] if options else []


def _fabric_callbacks() -> list[object]:
    from trainperf.plugins.fabric_setup import FabricSetup  # noqa: PLC0415 PyTorch is loaded now

    return [FabricSetup()]


def _callback(options: LaunchOptions) -> object:
    options.send(LaunchSignal.TRAINER)
    from trainperf.lightning.callback import AutoTrainPerf  # noqa: PLC0415 Lightning is loaded now

    return AutoTrainPerf()
