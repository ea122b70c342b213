"""Schedule of captures: planned, requested by a user, or caused by a slow step.

To ask, touch `capture` in the run directory.  Several ranks must capture the same steps, but see
the file at different moments: the lowest of them takes it away and writes down a step that none of
the others can have passed.
"""

from collections import deque
from dataclasses import dataclass, fields
from math import ceil, inf, isfinite
from pathlib import Path
from statistics import median

from trainperf.core.errors import ConfigError
from trainperf.core.phases import DISQUALIFYING
from trainperf.core.run_directory import CAPTURE_REQUEST, TRACES, write_atomically
from trainperf.core.stats.warmup import WarmupDetector
from trainperf.recording.profiling.tracer import TraceOptions
from trainperf.recording.schedule import Interval


LOOK_EVERY_NS = 1_000_000_000
"""The file is looked for at most once in so long: a `stat` may be slow on a shared disk."""

_NOTICE_NS = 2.5 * LOOK_EVERY_NS

_MEDIAN_OF = 64
_MEDIAN_EVERY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSchedule:
    """Which steps are captured: as `torch.profiler.schedule`, counted from the start of the fit.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    skip_first: int
    """Steps before the first cycle."""
    wait: int
    """Steps of each cycle in which nothing happens."""
    warmup: int
    """Steps of each cycle that are left to the profiler to get going; at least one."""
    active: int
    """Steps of each cycle that are traced."""
    repeat: int
    """Number of cycles; 0 for cycles until the fit ends."""

    def __post_init__(self) -> None:
        for value in fields(self):
            least = 1 if value.name in ("warmup", "active") else 0
            demand_whole(value.name, getattr(self, value.name), least)

    def begins(self, step: int) -> bool:
        """Whether the warm-up of a cycle begins with this step.  Runs every step."""
        since = step - self.skip_first
        number, within = divmod(since, self.wait + self.warmup + self.active)
        return within == self.wait and since >= 0 and (not self.repeat or number < self.repeat)


def demand_whole(name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number of at least *least*."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{name}={value!r}: must be a whole number, at least {least}; try {name}={least}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlan:
    """Which steps are captured, and what of them."""

    schedule: CaptureSchedule
    options: TraceOptions
    offset: int = 0
    """Optimizer steps before this fit: numbers in traces go on from there."""
    request: "CaptureRequest | None" = None
    """Captures on demand, besides."""
    slow: "SlowSteps | None" = None
    """Captures after slow steps, besides."""


class SlowSteps:
    """Asks for a capture after a step of *factor* times the steady median, at most *most* times.

    The median is over the last 64 ordinary steps since the warm-up or the last capture asked for,
    at least 16, by the host's clock; the device is not asked.  A step with a tag has a reason to
    be slow, and asks for none.

    Raises:
        ConfigError: The factor is not a number above 1.
    """

    def __init__(self, factor: float, most: int) -> None:
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not number or not isfinite(factor) or factor <= 1:
            raise ConfigError(
                f"on_slow_step={factor!r}: must be a number above 1, times the median step; try "
                "on_slow_step=2.0"
            )
        self._factor = factor
        self._left = most
        self._warmup = WarmupDetector()
        self._walls: deque[int] = deque(maxlen=_MEDIAN_OF)
        self._limit_ns = inf
        self._since = 0
        self.steps: list[int] = []
        """Numbers of the slow steps after which a capture was asked for."""

    def look(self, index: int, wall_ns: int, tags: int) -> bool:
        """Whether the steps after this one shall be captured.  Runs every step."""
        if not self._left or tags & DISQUALIFYING or self._warmup.is_warmup(wall_ns, tags):
            return False
        if wall_ns > self._limit_ns:
            self._left -= 1
            self.steps.append(index)
            self._learn_anew()
            return True
        self._walls.append(wall_ns)
        self._since += 1
        if self._since == _MEDIAN_EVERY:
            self._since = 0
            self._limit_ns = self._factor * median(self._walls)
        return False

    def _learn_anew(self) -> None:
        """A run that stays slow has a new median, and is asked about once."""
        self._walls.clear()
        self._limit_ns = inf
        self._since = 0

    def note(self) -> str:
        """After which steps, in words."""
        steps = ", ".join(map(str, self.steps))
        return f"traced after steps of more than {self._factor:g} × the median: {steps}"


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
        self._answered = "" if self._leads else self._noted()

    def look(self, now_ns: int, step: int, step_ns: int) -> int | None:
        """The step at which a capture shall begin, once per request.  Runs every step.

        Args:
            now_ns: The host clock.
            step: The step that begins now.
            step_ns: How long a step takes, roughly.
        """
        if not self._interval.due(now_ns):
            return None
        return self._lead(step, step_ns) if self._leads else self._follow()

    def _lead(self, step: int, step_ns: int) -> int | None:
        if not self._file.exists():
            return None
        self._file.unlink(missing_ok=True)
        if self._alone:
            return step
        agreed = step + ceil(_NOTICE_NS / max(1, step_ns))
        self._note.parent.mkdir(exist_ok=True)
        write_atomically(self._note, f"{agreed} {step}".encode("ascii"))
        return agreed

    def _follow(self) -> int | None:
        noted = self._noted()
        if noted == self._answered:
            return None
        self._answered = noted
        return int(noted.split()[0])

    def _noted(self) -> str:
        try:
            return self._note.read_text(encoding="ascii")
        except FileNotFoundError:
            return ""
