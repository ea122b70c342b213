"""Captures that a user requests while the fit goes on, by touching `capture` in the run directory.

The file stays: each rank answers once whenever it sees that it was touched anew.  Ranks look by
themselves, so that several of them may capture other steps.
"""

from pathlib import Path

from trainperf.core.run_directory import CAPTURE_REQUEST


class CaptureRequest:
    """The file `capture` in a run directory, as one rank sees it.

    Args:
        run: The run directory.
    """

    def __init__(self, run: Path) -> None:
        self._file = run / CAPTURE_REQUEST
        self._answered_ns = self._touched_ns()

    def is_new(self) -> bool:
        """Whether a capture is requested, true once per request."""
        before_ns, self._answered_ns = self._answered_ns, self._touched_ns()
        return self._answered_ns not in (0, before_ns)

    def _touched_ns(self) -> int:
        """When, by the clock of the disk; 0 where there is no request."""
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0
