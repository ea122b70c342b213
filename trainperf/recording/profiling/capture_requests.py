"""Captures that a user requests while the fit goes on.

To ask, touch `capture` in the run directory.  Several ranks must capture the same steps, but see
the file at different moments: the lowest of them takes it away and writes down a step that none of
the others can have passed.
"""

from math import ceil, inf
from pathlib import Path

from trainperf.core.run_directory import CAPTURE_REQUEST, TRACES, write_atomically
from trainperf.recording.schedule import CostLimit


LOOK_EVERY_NS = 1_000_000_000
"""The file is looked for at most once in so long: a `stat` may be slow on a shared disk."""

_NOTICE_NS = 2.5 * LOOK_EVERY_NS


class CaptureRequest:
    """The file `capture` in a run directory, seen from one of the ranks that capture.

    Args:
        run: The run directory.
        rank: This rank.
        ranks: All ranks that capture.
    """

    def __init__(self, run: Path, *, rank: int, ranks: tuple[int, ...]) -> None:
        self._file = run / CAPTURE_REQUEST
        self._note = run / TRACES / ".capture-at"
        self._leads = rank == min(ranks)
        self._notice_ns = 0 if len(ranks) == 1 else _NOTICE_NS
        self._interval = CostLimit(least_ns=LOOK_EVERY_NS)
        self._answered = self._noted()
        self.at: float = inf
        """The step at which the requested capture begins; infinity without a request."""

    def due(self, now_ns: int, step: int, step_ns: int) -> bool:
        """Whether a requested capture begins, true once per request.  Runs every step.

        Args:
            now_ns: The host clock.
            step: The step that begins now.
            step_ns: How long a step takes, roughly.
        """
        if self._interval.due(now_ns):
            self._look(step, step_ns)
        if step < self.at:
            return False
        self.at = inf
        return True

    def _look(self, step: int, step_ns: int) -> None:
        if self._leads and self._file.exists():
            self._file.unlink(missing_ok=True)
            self.at = step + ceil(self._notice_ns / max(1, step_ns))
            if self._notice_ns:
                self._note.parent.mkdir(exist_ok=True)
                write_atomically(self._note, f"{self.at} {step}".encode("ascii"))
        noted = "" if self._leads else self._noted()
        if noted and noted != self._answered:
            self._answered = noted
            self.at = int(noted.split()[0])

    def _noted(self) -> str:
        try:
            return self._note.read_text(encoding="ascii")
        except OSError:  # nobody has noted anything yet
            return ""
