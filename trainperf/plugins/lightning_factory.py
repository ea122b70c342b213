"""Callbacks for Lightning, under `trainperf run` and its kin alone.

It asks the entry points of `plugins/launched` for every Trainer; no other process has them.
Nothing is raised: a training that cannot be measured goes on unmeasured.
"""

from trainperf.core.launch_environment import LaunchOptions
from trainperf.recording.guard import Guard


def callbacks(options: str = "") -> list[object]:
    """What Lightning attaches to a new Trainer: a `TrainPerf`, or nothing without *options*.

    Where the script has a `TrainPerf` of its own, the attached one measures nothing.
    """
    if not options:
        return []
    return Guard().run("trainperf run", lambda: _attached(options)) or []


def _attached(options: str) -> list[object]:
    LaunchOptions.parse(options)  # what cannot be read is refused here, not amid the training
    from trainperf.lightning.callback import AutoTrainPerf  # noqa: PLC0415 Lightning is loaded now

    return [AutoTrainPerf()]
