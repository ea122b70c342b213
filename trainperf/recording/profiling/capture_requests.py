"""Captures besides the schedule: requested by a user, or caused by a slow step.

To ask, touch `capture` in the run directory.  Several ranks must capture the same steps, but see
the file at different moments: the lowest of them takes it away and writes down a step that none of
the others can have passed.
"""

from collections import deque
from math import ceil, inf
from pathlib import Path
from statistics import median

from trainperf.core.phases import DISQUALIFYING
from trainperf.core.run_directory import CAPTURE_REQUEST, TRACES, write_atomically
from trainperf.core.stats.warmup import WarmupDetector
from trainperf.recording.schedule import Interval


LOOK_EVERY_NS = 1_000_000_000
"""The file is looked for at most once in so long: a `stat` may be slow on a shared disk."""

_NOTICE_NS = 2.5 * LOOK_EVERY_NS

_MEDIAN_OF = 64
_MEDIAN_EVERY = 16


class SlowSteps:
    """Asks for a capture after a step of *factor* times the steady median, at most *most* times.

    The median is over the last 64 ordinary steps since the warm-up or the last capture asked for,
    at least 16, by the host's clock; the device is not asked.  A step with a tag has a reason to
    be slow, and asks for none.
    """

    def __init__(self, factor: float, most: int) -> None:
        self._factor, self._most = factor, most
        self._warmup = WarmupDetector()
        self._walls: deque[int] = deque(maxlen=_MEDIAN_OF)
        self._limit_ns = inf
        self._since = 0
        self.steps: list[int] = []
        """Numbers of the slow steps after which a capture was asked for."""

    def look(self, index: int, wall_ns: int, tags: int) -> bool:
        """Whether the steps after this one shall be captured.  Runs every step."""
        full = len(self.steps) == self._most
        if full or tags & DISQUALIFYING or self._warmup.is_warmup(wall_ns, tags):
            return False
        slow = wall_ns > self._limit_ns
        if slow:
            # A run that stays slow has a new median, and is asked about once.
            self.steps.append(index)
            self._walls.clear()
            self._limit_ns, self._since = inf, 0
        else:
            self._walls.append(wall_ns)
            self._since += 1
            if self._since % _MEDIAN_EVERY == 0:
                self._limit_ns = self._factor * median(self._walls)
        return slow

    def notes(self) -> dict[str, str]:
        """After which steps, in words; empty where none was slow."""
        if not self.steps:
            return {}
        steps = ", ".join(map(str, self.steps))
        sentence = f"traced after steps of more than {self._factor:g} × the median: {steps}"
        return {"captures_slow": sentence}


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
        self._alone = len(ranks) == 1
        self._interval = Interval(LOOK_EVERY_NS)
        self._answered = self._noted()
        self.at = inf
        """The step at which the requested capture begins; infinity without a request."""

    def due(self, now_ns: int, step: int, step_ns: int) -> bool:
        """Whether a requested capture begins, true once per request.  Runs every step.

        Args:
            now_ns: The host clock.
            step: The step that begins now.
            step_ns: How long a step takes, roughly.
        """
        if self._interval.due(now_ns):
            if self._leads:
                self._lead(step, step_ns)
            else:
                self._follow()
        if step < self.at:
            return False
        self.at = inf
        return True

    def _lead(self, step: int, step_ns: int) -> None:
        if not self._file.exists():
            return
        self._file.unlink(missing_ok=True)
        self.at = step
        if not self._alone:
            self.at += ceil(_NOTICE_NS / max(1, step_ns))
            self._note.parent.mkdir(exist_ok=True)
            write_atomically(self._note, f"{self.at} {step}".encode("ascii"))

    def _follow(self) -> None:
        noted = self._noted()
        if noted and noted != self._answered:
            self._answered = noted
            self.at = int(noted.split()[0])

    def _noted(self) -> str:
        try:
            return self._note.read_text(encoding="ascii")
        except OSError:  # nobody has noted anything yet
            return ""
