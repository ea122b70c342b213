"""Trace of a few steps: one torch profiler, its marks, and its file.

Measured on torch 2.13: a second session in one process takes the events of the first, and a
session that another one has cancelled while it was warming up kills the process when it starts.
So each capture has a profiler of its own, looks for others first, and prepares anew just before it
records, never relying on a session that was left alone for a while.
"""

import gc
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, record_function, supported_activities

from trainperf.core.run_directory import TRACE_SUFFIX, trace_stem


STEP_MARK = "ProfilerStep#"
"""What every reader of Kineto traces takes for the beginning of a step's mark."""

# On a trace of ours level 3 packs 230 MB/s to 8 %; torch's own level 9 packs 20 MB/s to 7 %.
_GZIP_LEVEL = 3
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What a trace shall hold in addition to the operators; each of them costs time and size."""

    device: str
    """Type of the device the model is on."""
    record_shapes: bool
    with_stack: bool
    profile_memory: bool


class Tracer:
    """One capture, used once: `warm_up`, `start`, `stop`, `export`; or `drop` at any time."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._profile: torch.profiler.profile | None = None
        self._running = False

    def warm_up(self) -> bool:
        """Wake the device's tracing up, results thrown away; `False` when another profiler runs.

        On a CPU there is nothing to wake.
        """
        if self._options.device == "cpu":
            return True
        if another_profiler():
            return False
        self._profile = self._prepared()
        return True

    def start(self) -> bool:
        """Begin to record; `False` when another profiler has started meanwhile."""
        self._profile = None
        if another_profiler():
            return False
        self._profile = self._prepared()
        self._profile.start_trace()
        self._running = True
        return True

    def stop(self, facts: Mapping[str, object]) -> None:
        """End the recording, with *facts* about it in the trace; waits for the device."""
        assert self._profile is not None  # noqa: S101 after `start` only
        encoded = msgspec.json.encode(facts).decode()
        self._profile.add_metadata_json("trainperf", encoded)
        self._running = False
        self._profile.stop_trace()

    def export(self, path: Path) -> None:
        """Write the stopped trace as JSON."""
        assert self._profile is not None  # noqa: S101 after `start` only
        self._profile.export_chrome_trace(str(path))

    def drop(self) -> None:
        """Leave nothing running and keep nothing."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        if self._running:
            self._running = False
            profile.stop_trace()
            return
        del profile
        if self._options.device != "cpu" and not another_profiler():
            # The device's tracing leaves its warm-up through a recording only.
            empty = self._prepared()
            empty.start_trace()
            empty.stop_trace()

    def _prepared(self) -> torch.profiler.profile:
        options = self._options
        on_cpu = options.device == "cpu"
        profile = torch.profiler.profile(
            activities=[ProfilerActivity.CPU] if on_cpu else supported_activities(),  # type: ignore[no-untyped-call]
            record_shapes=options.record_shapes,
            with_stack=options.with_stack,
            profile_memory=options.profile_memory,
        )
        profile.prepare_trace()
        return profile


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
        self._step: record_function | None = None
        self._ground: record_function | None = None
        self._nested: list[record_function] = []

    def begin_step(self, number: int) -> None:
        """A step begins; one that is open ends."""
        self.end_step()
        self._step = _begun(f"{STEP_MARK}{number}")

    def end_step(self) -> None:
        """The step ends, with all that is open in it."""
        self.rest(None)
        if self._step is not None:
            _end(self._step)
            self._step = None

    def rest(self, name: str | None) -> None:
        """Whatever was open inside the step ends, and *name* goes on."""
        while self._nested:
            _end(self._nested.pop())
        if self._ground is not None:
            _end(self._ground)
        self._ground = None if name is None else _begun(name)

    def enter(self, name: str) -> None:
        """Something nested begins."""
        self._nested.append(_begun(name))

    def leave(self) -> None:
        """The innermost nested one ends; one that began before the trace did is not ours."""
        if self._nested:
            _end(self._nested.pop())


def _begun(name: str) -> record_function:
    mark = record_function(name)
    mark.__enter__()  # type: ignore[no-untyped-call]
    return mark


def _end(mark: record_function) -> None:
    mark.__exit__(None, None, None)


class TraceFolder:
    """Where the traces of one rank go: gzipped, whole or not at all, never too large.

    Args:
        path: The directory; made when the first trace is written.
        rank: Whose traces they are.
        max_bytes: A trace whose packed file would be larger is thrown away.
        max_traces: How many may be written.
    """

    def __init__(self, path: Path, *, rank: int, max_bytes: int, max_traces: int) -> None:
        self.path = path
        self.rank = rank
        self.max_bytes = max_bytes
        self.max_traces = max_traces
        self.written: list[str] = []
        """Names of the files, oldest first."""

    @property
    def full(self) -> bool:
        """Whether no further trace may be written."""
        return len(self.written) >= self.max_traces

    def write(self, first: int, steps: int, export: Callable[[Path], None]) -> str | None:
        """Write the trace of *steps* steps from number *first*; its name, `None` if too large.

        Raises:
            OSError: The directory cannot be written, or the disk is full.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        stem = trace_stem(self.rank, first, steps)
        plain = self.path / f".{stem}.tmp.json"
        packed = self.path / f".{stem}.tmp.gz"
        try:
            export(plain)
            _demand_whole(plain)
            if not _pack(plain, packed, self.max_bytes):
                return None
            target = self._free(stem)
            packed.replace(target)
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        self.written.append(target.name)
        return target.name

    def _free(self, stem: str) -> Path:
        """A restarted job goes on in the same run directory and may trace the same steps."""
        target, number = self.path / f"{stem}{TRACE_SUFFIX}", 1
        while target.exists():
            number += 1
            target = self.path / f"{stem}-{number}{TRACE_SUFFIX}"
        return target


def _demand_whole(path: Path) -> None:
    """Kineto logs that the disk is full, and goes on."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"{path}: the trace was not written whole; is the disk full?")


def _pack(plain: Path, packed: Path, max_bytes: int) -> bool:
    """Compress; stops and says `False` as soon as the result is too large."""
    with plain.open("rb") as source, packed.open("wb") as target:
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0) as stream:
            while chunk := source.read(_CHUNK_BYTES):
                stream.write(chunk)
                if target.tell() > max_bytes:
                    return False
        return target.tell() <= max_bytes
