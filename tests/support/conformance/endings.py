"""Trainings that end as processes do: `python -m support.conformance.endings FOLDER`.

Everything is imported once; each training is that of a fork.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest
from support.conformance.doors import DOORS, SILENT, Door, Outside
from support.conformance.planted import Planted
from support.conformance.story import Story

from trainperf.core.machine.clocks import monotonic_ns
from trainperf.testing import FakeClock


STEPS, AT = 8, 5
"""Steps of each training, and that in whose callback it ends."""
STORY = Story(name="an end", epochs=1, batches=STEPS)
PATIENCE_S = 10.0
"""Until a process that was started beside a training must have noticed that this is over."""


def raises() -> None:
    """An error that nobody catches."""
    raise MemoryError("planted")


def interrupts() -> None:
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1.0)


def terminates() -> None:
    """As a scheduler does."""
    os.kill(os.getpid(), signal.SIGTERM)


def forks() -> None:
    """Into a process that ends like any."""
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)


ENDINGS: dict[str, Callable[[], object]] = {
    "an exception": raises,
    "Ctrl-C": interrupts,
    "sys.exit": lambda: sys.exit(3),
    "SIGTERM": terminates,
    "os._exit": lambda: os._exit(3),
    "a fork amid the training": forks,
    "a forked process": int,
    "a spawned process": int,
}
"""What happens in the callback of a step."""


OPEN = None
"""Of a run that nobody could close."""

REASONS: dict[str, str | None] = {
    "an exception": "MemoryError",
    "Ctrl-C": "interrupted",
    "sys.exit": "SystemExit",
    "SIGTERM": OPEN,
    "os._exit": OPEN,
    "a fork amid the training": "finished",
    "a forked process": "finished",
    "a spawned process": "finished",
}
"""What the run says, closed by whatever door it came through."""

DIFFERENT: dict[tuple[str, str], tuple[str | None, str]] = {
    ("Lightning", "SIGTERM"): (
        "SIGTERMException",
        "a Trainer makes an exception of the signal, and ends its training with it",
    ),
    ("from outside", "sys.exit"): (
        "finished",
        "a script that exits has ended like any: nobody else knows how far it wanted to go",
    ),
    ("from outside", "a forked process"): (
        OPEN,
        "`multiprocessing` ends a forked process without what is to be run at its exit",
    ),
}
"""Where that is another by definition, and why."""


OPEN_DOORS: list[AbstractContextManager[None]] = []
"""Nobody leaves them: the process ends."""


def differing() -> list[tuple[str, str, str]]:
    """For the page of the documentation."""
    return [(door, ending, why) for (door, ending), (_, why) in DIFFERENT.items()]


def train(kind: type[Door], ending: str, path: Path) -> None:
    """To the end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = {"report": False, "machine": True, "lines": True}
    options = {} if kind is Outside else {**SILENT, **own}
    planted = Planted(STORY, FakeClock())
    planted.look = lambda: ENDINGS[ending]() if planted.steps == AT else None
    door = kind(path, monotonic_ns, options)
    OPEN_DOORS.append(door.open(pytest.MonkeyPatch()))
    OPEN_DOORS[-1].__enter__()
    door.train(planted)


def in_process(kind: type[Door], ending: str, path: Path) -> None:
    """As `train`, perhaps in a process that Python has made."""
    method = {"a forked process": "fork", "a spawned process": "spawn"}.get(ending)
    if method is None:
        train(kind, ending, path)
        return
    child = multiprocessing.get_context(method).Process(target=train, args=(kind, ending, path))
    child.start()
    child.join()


def beside(path: Path) -> list[str]:
    """Processes that go on for a run there, after a while."""
    until = time.monotonic() + PATIENCE_S
    while True:
        lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
        left = [" ".join(line) for line in lines if str(path) in " ".join(line[1:])]
        left = [line for line in left if __name__ not in line and "endings" not in line]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def main(folder: Path, *endings: str) -> None:
    """Each ending in each door, those of a door side by side; a line for each."""
    train(DOORS[0], "a forked process", folder / "first")  # what it loads nobody loads again
    for kind in DOORS:
        children = {}
        for ending in endings:
            path = folder / kind.name / ending
            path.mkdir(parents=True)
            children[ending] = os.fork()
            if children[ending] == 0:
                in_process(kind, ending, path)
                sys.exit(0)
        for ending, child in children.items():
            path = folder / kind.name / ending
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            print(json.dumps([kind.name, ending, code, beside(path)]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
