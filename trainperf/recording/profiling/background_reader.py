"""Reader of traces while the fit goes on: one child process of low priority at a time.

The child is a fresh interpreter without torch: it shares no thread, no lock and no device with the
loop, which only starts it and looks now and then whether it has ended.
"""

import subprocess
from collections import deque
from pathlib import Path

import msgspec

from trainperf.recording.child_process import end_child, start_child
from trainperf.recording.guard import log
from trainperf.recording.schedule import comes_true


READER = "trainperf.traces.background_process"
"""The module that the child runs."""

PATIENCE_NS = 10_000_000_000
"""How long the end of a fit waits for traces that are still being read."""


class TraceWorker:
    """Has traces read one after the other; never waits for them while the fit goes on.

    Args:
        patience_ns: How long `finish` waits; with 0 others read what is left, and nothing is said.
    """

    def __init__(self, patience_ns: int = PATIENCE_NS) -> None:
        self._patience_ns = patience_ns
        self._requests: deque[tuple[Path, ...]] = deque()
        """Traces of a capture, to be read together; the first are being read."""
        self.child: subprocess.Popen[bytes] | None = None
        """What reads a trace, as far as was seen."""
        self._unread: list[str] = []

    def send(self, *traces: Path) -> None:
        """Have the traces of a capture read as soon as nothing else is being read."""
        self._requests.append(traces)
        self.go_on()

    def has_ended(self) -> bool:
        """Whether there is a child whose end was not seen."""
        return self.child is not None and self.child.poll() is not None

    def go_on(self) -> bool:
        """Take what the child has to say, if it has ended, and start the next; whether none is."""
        if self.child is not None and self.has_ended():
            try:
                answer = msgspec.json.decode(self.child.communicate()[0], type=dict[str, str])
                self._settle(answer.get("error"))
            except msgspec.DecodeError:
                self._settle(f"the process that read it ended with {self.child.returncode}")
            self.child = None
        while self.child is None and self._requests:
            traces = [str(trace.resolve()) for trace in self._requests[0]]
            try:
                self.child = start_child(READER, *traces, stdout=subprocess.PIPE)
            except OSError as error:
                self._settle(f"no process could be started ({error})")
        return self.child is None

    def finish(self) -> dict[str, str]:
        """Wait a moment for what is still being read, then end it; a note on what was not read."""
        try:
            if self._patience_ns:
                comes_true(self.go_on, self._patience_ns)
        finally:
            if self.child is not None:
                end_child(self.child)
            self.child = None
        while self._requests and self._patience_ns:
            self._settle("the fit had ended")
        if not self._unread:
            return {}
        sentence = f"traces not read ({'; '.join(self._unread)}): run `trainperf trace` on them"
        log.warning("trainperf: %s", sentence)
        return {"captures_unread": sentence}

    def _settle(self, error: str | None) -> None:
        """Those that are read, or come next, have been, or why they are not."""
        names = ", ".join(trace.name for trace in self._requests.popleft())
        if error is not None:
            self._unread.append(f"{names}: {error}")
