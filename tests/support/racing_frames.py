"""A thread whose stack is read as fast as it can be, while finalizers let it go on amid that.

    python tests/support/racing_frames.py SECONDS

Frames of unlike sizes come and go, so that what is read of a frame that is gone is not one.  With
Python 3.11, which collects garbage as it makes the object of a frame, this ends by a signal within
a tenth of a second unless whoever reads a stack prevents that.
"""

import gc
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable

from trainperf.recording.stacks import running_in


Calls = list[Callable[[int], None]]


class Lingers:
    """Garbage by itself, which lets other threads go on as it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def functions(number: int) -> Calls:
    """Functions with ever more variables, each of which calls any of them so many times deep."""
    space: dict[str, object] = {"choice": random.Random(7).choice}  # noqa: S311 no secret
    for at in range(number):
        variables = "".join(f"    v{n} = deep\n" for n in range(1 + 5 * at))
        exec(f"def f{at}(deep):\n{variables}    if deep: choice(calls)(deep - 1)\n", space)  # noqa: S102
    space["calls"] = calls = [space[f"f{at}"] for at in range(number)]
    return calls  # type: ignore[return-value]  # what `exec` has defined


def main(seconds: float) -> None:
    """Call and be looked at for so long."""
    watched, over = threading.get_ident(), threading.Event()

    def look() -> None:
        while not over.is_set():
            Lingers()
            running_in(watched)

    sys.setswitchinterval(1e-6)
    gc.freeze()
    gc.set_threshold(10, 10**6, 10**6)
    threading.Thread(target=look, daemon=True).start()
    ends_s = time.perf_counter() + seconds
    for call in itertools.cycle(functions(12)):
        call(25)
        if time.perf_counter() > ends_s:
            break
    over.set()


if __name__ == "__main__":
    main(float(sys.argv[1]))
