"""Is this Trainer to be measured though its script does not say so?  Lightning asks, at every one.

The entry point of `trainperf run`: imports next to nothing and returns nothing unless that command
started the process, and never raises: an installed trainperf cannot break anybody's training.
"""

import contextlib
import json
import os

from trainperf.core.launch_environment import ASKED, SEEN


def callbacks() -> list[object]:
    """What Lightning attaches to a new Trainer: a `TrainPerf` if it was asked for, else nothing.

    Beside a `TrainPerf` of the script's own it measures nothing.
    """
    asked = os.environ.get(ASKED)
    if not asked:
        return []
    from trainperf.recording.guard import Guard  # noqa: PLC0415 only where it was asked for

    return Guard().run("trainperf run", lambda: [_asked_for(asked)]) or []


def _asked_for(asked: str) -> object:
    wanted = json.loads(asked)
    seen = wanted.pop(SEEN, None)
    if seen is not None:
        # On another machine its folder is missing: a rank that did not take part would leave the
        # others waiting where all of them choose the directory.
        with contextlib.suppress(OSError):
            os.close(os.open(seen, os.O_CREAT | os.O_WRONLY))
    from trainperf.lightning.launched import unasked  # noqa: PLC0415 only where it was asked for

    return unasked(wanted)
