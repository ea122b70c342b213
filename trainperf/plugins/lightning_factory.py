"""Lightning entry point behind `trainperf run`.

Lightning calls it for every Trainer of every user.  It imports next to nothing and returns nothing
unless that command started the process, and never raises: an installed trainperf cannot break
anybody's training.
"""

import contextlib
import os

from trainperf.core.launch_environment import VARIABLE, LaunchOptions


def callbacks() -> list[object]:
    """What Lightning attaches to a new Trainer: under `trainperf run` a `TrainPerf`, else nothing.

    Where the script has a `TrainPerf` of its own, the attached one measures nothing.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return []
    from trainperf.recording.guard import Guard  # noqa: PLC0415 only under `trainperf run`

    return Guard().run("trainperf run", lambda: [_callback(LaunchOptions.parse(text))]) or []


def _callback(options: LaunchOptions) -> object:
    if options.marker is not None:
        # On another machine its folder is missing: a rank that did not take part would leave the
        # others waiting where all of them choose the directory.
        with contextlib.suppress(OSError):
            os.close(os.open(options.marker, os.O_CREAT | os.O_WRONLY))
    from trainperf.lightning.callback import AutoTrainPerf  # noqa: PLC0415 only under that command

    return AutoTrainPerf(options)
