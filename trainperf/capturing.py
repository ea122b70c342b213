"""When is a capture due: by plan, or because somebody asks for one while training runs?

To ask, touch `capture` in the run directory.  Several ranks must capture the same steps, but see
the file at different moments: the lowest of them takes it away and writes down a step that none of
the others can have passed.
"""

from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path

from trainperf.errors import ConfigError
from trainperf.schedule import Interval


LOOK_EVERY_NS = 1_000_000_000
"""The file is looked for at most once in so long: a `stat` may be slow on a shared disk."""

_NOTICE_NS = 2.5 * LOOK_EVERY_NS


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


class CaptureRequest:
    """The file `capture` in a run directory, seen from one of the ranks that capture.

    Args:
        run: The run directory.
        rank: This rank.
        ranks: All ranks that capture.
    """

    def __init__(self, run: Path, *, rank: int, ranks: tuple[int, ...]) -> None:
        self._file = run / "capture"
        self._note = run / "traces" / ".capture-at"
        self._leads = rank == min(ranks)
        self._alone = len(ranks) == 1
        self._interval = Interval(LOOK_EVERY_NS)
        self._known = "" if self._leads else self._noted()

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
        draft = self._note.with_suffix(".tmp")
        draft.write_text(f"{agreed} {step}", encoding="ascii")
        draft.replace(self._note)
        return agreed

    def _follow(self) -> int | None:
        noted = self._noted()
        if noted == self._known:
            return None
        self._known = noted
        return int(noted.split()[0])

    def _noted(self) -> str:
        try:
            return self._note.read_text(encoding="ascii")
        except FileNotFoundError:
            return ""
