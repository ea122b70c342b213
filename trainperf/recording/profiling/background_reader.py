"""Reader of traces while the fit goes on: one child process of low priority at a time.

The child is a fresh interpreter without torch: it shares no thread, no lock and no device with the
loop, which only starts it and looks now and then whether it has ended.
"""

import logging
import subprocess
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.child_process import end_child, start_child
from trainperf.recording.schedule import CostLimit


log = logging.getLogger("trainperf")

READER = "trainperf.traces.background_process"
"""The module that the child runs."""

LOOK_EVERY_NS = 500_000_000
PATIENCE_NS = 10_000_000_000
"""How long the end of a fit waits for traces that are still being read."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What the child says, in one line, when it has read a trace."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Traces of one capture, to be read together."""

    traces: tuple[Path, ...]

    def unread(self, why: str) -> str:
        """The traces, and why they were not read."""
        return f"{', '.join(trace.name for trace in self.traces)}: {why}"


class TraceWorker:
    """Has traces read one after the other; never waits for them while the fit goes on.

    Args:
        patience_ns: How long `finish` waits; with 0 others read what is left, and nothing is said.
    """

    def __init__(self, patience_ns: int = PATIENCE_NS) -> None:
        self._patience_ns = patience_ns
        self._requests: deque[ReadRequest] = deque()
        """The first is being read."""
        self._child: subprocess.Popen[bytes] | None = None
        self._interval = CostLimit(least_ns=LOOK_EVERY_NS)
        self._unread: list[str] = []

    def send(self, request: ReadRequest) -> None:
        """Have traces read as soon as nothing else is being read."""
        self._requests.append(request)
        self.go_on()

    @property
    def busy(self) -> bool:
        """Whether a trace is being read, as far as was seen."""
        return self._child is not None

    def look(self, now_ns: int) -> bool:
        """Whether the child has ended, asked at most twice a second.  Runs every step."""
        child = self._child
        return child is not None and self._interval.due(now_ns) and child.poll() is not None

    def go_on(self) -> None:
        """Take what the child has to say, if it has ended, and start the next one."""
        child = self._child
        if child is not None and child.poll() is not None:
            self._child = None
            self._take_answer(self._requests.popleft(), child)
        while self._child is None and self._requests:
            traces = [str(trace.resolve()) for trace in self._requests[0].traces]
            try:
                self._child = start_child(READER, *traces, stdout=subprocess.PIPE)
            except OSError as error:
                why = f"no process could be started ({error})"
                self._unread.append(self._requests.popleft().unread(why))

    def finish(self) -> dict[str, str]:
        """Wait a moment for what is still being read, then end it; a note on what was not read."""
        deadline = monotonic_ns() + self._patience_ns
        try:
            while self._child is not None and monotonic_ns() < deadline:
                time.sleep(0.02)
                self.go_on()
        finally:
            child, self._child = self._child, None
            if child is not None:
                end_child(child)
        if self._patience_ns:
            self._unread += [request.unread("the fit had ended") for request in self._requests]
        if not self._unread:
            return {}
        sentence = f"traces not read ({'; '.join(self._unread)}): run `trainperf trace` on them"
        log.warning("trainperf: %s", sentence)
        return {"captures_unread": sentence}

    def _take_answer(self, request: ReadRequest, child: "subprocess.Popen[bytes]") -> None:
        try:
            read = msgspec.json.decode(child.communicate()[0], type=Read)
        except msgspec.DecodeError:
            read = Read(error=f"the process that read it ended with {child.returncode}")
        if read.error is not None:
            self._unread.append(request.unread(read.error))
