"""Samples of the main thread before there is a fit: what a script does ahead of its first step.

A thread looks at the stack five times a second, ever more seldom the longer it takes, from the
moment in which torch is loaded where `trainperf run` has launched the process, else from that in
which a door of trainperf is.  Frames are copied, none is held: what the script lets go of is gone.
"""

import gc
import multiprocessing
import sys
import threading
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from trainperf.core.artifacts.lines import (
    AWAITING,
    BEFORE_FIT,
    BUILDING,
    COMPILING,
    DATASET_MAP,
    DATASET_MAP_IN_PROCESSES,
    DATASETS,
    IMPORTS,
    JOINING,
    LOADING,
    PREPARING,
    TOKENIZING,
)
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.recording.probes.host_work import package_of


EVERY_NS = 200_000_000
"""Between two looks, in the beginning."""
LOOKS = 500
"""From so many on they get rarer, so that the last ones are a five-hundredth of all the time apart:
in a day there are some 3,000."""
_DEEPEST = 200

_LOADS = "<frozen importlib._bootstrap>"
"""The part of Python that loads modules."""

_NAMED = (
    (IMPORTS, "", _LOADS, ""),
    (JOINING, "torch", "distributed_c10d.py", ""),
    (JOINING, "filelock", "", ""),
    (DATASET_MAP, "datasets", "arrow_dataset.py", "_map_single"),
    (DATASET_MAP_IN_PROCESSES, "datasets", "py_utils.py", "iflatmap_unordered"),
    (DATASETS, "datasets", "", ""),
    (TOKENIZING, "transformers", "tokenization_", ""),
    (LOADING, "transformers", "modeling_utils.py", "from_pretrained"),
    (LOADING, "torch", "torch/serialization.py", "load"),
    (LOADING, "torch", "torch/distributed/checkpoint/", ""),
    (LOADING, "safetensors", "", ""),
    (LOADING, "huggingface_hub", "", ""),
    (AWAITING, "torch", "torch/utils/data/dataloader.py", "_try_get_data"),
    (AWAITING, "torch", "torch/utils/data/dataloader.py", "__init__"),
    (COMPILING, "torch", "torch/_dynamo/convert_frame.py", ""),
    (BUILDING, "torch", "torch/nn/init.py", ""),
    (BUILDING, "torch", "torch/nn/modules/", "__init__"),
)
"""Slot, installed package, part of a file's name, and function; the first one that any frame of a
stack is of has it."""

Stack: TypeAlias = list[tuple[CodeType, int | None]]
"""Code and line of each frame, the innermost first; a line is `None` between two of them."""


class EarlySample(NamedTuple):
    """A look at the main thread."""

    stack: Stack
    at_ns: int
    """Host time."""
    stands_for_us: int


def slot_of(stack: Stack) -> str:
    """What runs there, as the ledger of what comes before the first step calls it."""
    frames = [(code.co_filename, code.co_name) for code, _ in stack]
    for slot, package, part, name in _NAMED:
        for file, function in frames:
            if part in file and name in ("", function) and package in ("", package_of(file)):
                return slot
    return BEFORE_FIT


def prepared_s(samples: Iterable[EarlySample]) -> float:
    """Seconds in which something was prepared whose result could be kept."""
    return sum(s.stands_for_us for s in samples if slot_of(s.stack) in PREPARING) / 1e6


class EarlyLines:
    """Samples the main thread from `start` to `end`.

    Args:
        clock: Of the pauses.
    """

    def __init__(self, clock: HostClock = monotonic_ns) -> None:
        self._clock = clock
        self.seen_from = ""
        """What had just been loaded."""
        self._samples: list[EarlySample] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loaded: str) -> None:
        """Begin; does nothing in a process that another Python process has made for its own work.

        A worker of a loader would sample itself for as long as it lives.  In a session that
        somebody types into, what comes before a fit is no work of the script.

        Args:
            loaded: The package that has just been.
        """
        script = hasattr(sys.modules["__main__"], "__file__")
        if self._thread is None and script and not of_another_process():
            self.seen_from = loaded
            self._thread = threading.Thread(
                target=self._look_until_stopped, name="trainperf early lines", daemon=True
            )
            self._thread.start()

    def end(self) -> tuple[EarlySample, ...]:
        """Stop; what was seen, once."""
        thread, self._thread = self._thread, None
        if thread is None:
            return ()
        self._stop.set()
        thread.join(timeout=1.0)
        samples, self._samples = tuple(self._samples), []
        return samples

    def _look_until_stopped(self) -> None:
        watched = threading.main_thread().ident
        began_ns = last_ns = self._clock()
        while not self._stop.wait(max(EVERY_NS, (last_ns - began_ns) // LOOKS) / 1e9):
            stack = running_in(watched or 0)[1][:_DEEPEST]
            now_ns = self._clock()
            if stack:
                stands_for_us = (now_ns - last_ns) // 1000
                self._samples.append(EarlySample(stack, now_ns, stands_for_us))
            last_ns = now_ns


def of_another_process() -> bool:
    """Whether `multiprocessing` has made this process.

    One that is spawned has no parent yet while it loads the script's modules.
    """
    spawned = getattr(multiprocessing.current_process(), "_inheriting", False)
    return spawned or multiprocessing.parent_process() is not None


def running_in(thread: int) -> tuple[FrameType | None, Stack]:
    """What a thread is running: its innermost frame, and its stack.

    Python 3.11 makes the objects of another thread's frames as they are asked for, and may collect
    garbage amid that: a finalizer then lets the thread go on, and what is read is gone.
    """
    collects = sys.version_info[:2] == (3, 11) and gc.isenabled()
    if collects:
        gc.disable()
    try:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 the documented name of it
        return frame, stack_of(frame)
    finally:
        if collects:
            gc.enable()


def stack_of(frame: FrameType | None) -> Stack:
    """The stack that ends in this frame, without what it holds.

    Empty without a frame, and where one that is being left has lost its code.
    """
    stack: Stack = []
    while frame is not None:
        code = getattr(frame, "f_code", None)
        if code is None:
            return []
        stack.append((code, frame.f_lineno))
        frame = frame.f_back
    return stack


EARLY_LINES = EarlyLines()
"""Of this process."""
