"""Trace of a few steps: one torch profiler, its marks, and its file.

Measured on torch 2.13: a second session in one process takes the events of the first, and a
session that another one has cancelled while it was warming up kills the process when it starts.
So each capture has a profiler of its own, looks for others first, and prepares anew just before it
records, never relying on a session that was left alone for a while.
"""

import gc
import gzip
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, record_function, supported_activities

from trainperf.core.run_directory import TRACE_SUFFIX
from trainperf.recording.profiling.options import ScheduledProfile


STEP_MARK = "ProfilerStep#"
"""What every reader of Kineto traces takes for the beginning of a step's mark."""

# On a trace of ours level 3 packs 230 MB/s to 8 %; torch's own level 9 packs 20 MB/s to 7 %.
_GZIP_LEVEL = 3
_CHUNK_BYTES = 1 << 20


class Tracer:
    """One capture, used once: `warm_up`, `start`, `stop`, `export`; or `drop` at any time.

    Args:
        options: What the trace shall hold in addition to the operators.
        device: Type of the device the model is on.
    """

    def __init__(self, options: ScheduledProfile, device: str) -> None:
        self._options = options
        self._on_cpu = device == "cpu"
        self._profile: torch.profiler.profile
        self._warm = self._running = False

    def warm_up(self) -> bool:
        """Wake the device's tracing up, results thrown away; `False` when another profiler runs.

        On a CPU there is nothing to wake.
        """
        self._warm = not self._on_cpu and self._prepare()
        return self._on_cpu or self._warm

    def start(self) -> bool:
        """Begin to record; `False` when another profiler has started meanwhile."""
        self._warm, self._running = False, self._prepare()
        if self._running:
            self._profile.start_trace()
        return self._running

    def stop(self, facts: Mapping[str, object]) -> None:
        """End the recording, with *facts* about it in the trace; waits for the device."""
        self._profile.add_metadata_json("trainperf", msgspec.json.encode(facts).decode())
        self._running = False
        self._profile.stop_trace()

    def export(self, path: Path) -> None:
        """Write the stopped trace as JSON."""
        self._profile.export_chrome_trace(str(path))

    def drop(self) -> None:
        """Leave nothing running."""
        # The device's tracing leaves its warm-up through a recording only.
        if self._running or (self._warm and self.start()):
            self._running = False
            self._profile.stop_trace()

    def _prepare(self) -> bool:
        """Have a profiler that is ready, in place of the one before; not beside another's."""
        options = self._options
        self._profile = torch.profiler.profile(
            activities=[ProfilerActivity.CPU] if self._on_cpu else supported_activities(),  # type: ignore[no-untyped-call]
            record_shapes=options.record_shapes,
            with_stack=options.with_stack,
            profile_memory=options.profile_memory,
        )
        if another_profiler():
            return False
        self._profile.prepare_trace()
        return True


def another_profiler() -> bool:
    """Whether a torch profiler records or warms up in this process.

    Nothing in torch tells that one is warming up, so it is searched for among all objects: some
    forty milliseconds a capture, of the profiler's own time.
    """
    if torch._C._autograd._profiler_enabled():  # noqa: SLF001 there is no public way to ask
        return True
    session = torch.autograd.profiler.profile
    # A third of what `gc.get_objects` takes: instances refer to their class.
    sessions = [candidate for candidate in gc.get_referrers(session) if type(candidate) is session]
    return any(candidate.entered and candidate.kineto_results is None for candidate in sessions)


class Marks:
    """Names what happens in the trace: a step, in it what the loop is at, in it what nests."""

    def __init__(self) -> None:
        self._open: list[record_function] = []

    def show(self, names: Sequence[str]) -> None:
        """End and begin marks until these are open, each inside the one before it."""
        while [mark.name for mark in self._open] != names[: len(self._open)]:
            self._open.pop().__exit__(None, None, None)
        for name in names[len(self._open) :]:
            self._open.append(record_function(name))
            self._open[-1].__enter__()  # type: ignore[no-untyped-call]


def write_trace(
    folder: Path, stem: str, export: Callable[[Path], None], max_bytes: int
) -> Path | None:
    """Write a trace, gzipped: whole or not at all.

    Args:
        folder: Where; made when the first trace is written.
        stem: Its name without the suffix; numbered on if there is one of that name, since a
            restarted job goes on in the same run directory and may trace the same steps.
        export: Writes it as JSON.
        max_bytes: If the packed file is larger it is thrown away, and `None` returned.

    Raises:
        OSError: The directory cannot be written, or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plain, packed = folder / f".{stem}.tmp.json", folder / f".{stem}.tmp.gz"
    try:
        export(plain)
        with plain.open("rb") as source, gzip.open(packed, "wb", _GZIP_LEVEL) as target:
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            source.seek(max(0, source.tell() - 64))
            # Kineto logs that the disk is full, and goes on.
            if not source.read().rstrip().endswith(b"}"):
                raise OSError(f"{plain}: the trace was not written whole; is the disk full?")
        if packed.stat().st_size > max_bytes:
            return None
        stems = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        traces = (folder / f"{numbered}{TRACE_SUFFIX}" for numbered in stems)
        return packed.replace(next(trace for trace in traces if not trace.exists()))
    finally:
        plain.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)
