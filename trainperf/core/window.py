"""RunWindow of a run: the steps or the time that somebody asks for."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainperf.core.formatting.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindow:
    """Steps, both ends included, or times; what is `None` has no end."""

    first: int | None = None
    last: int | None = None
    """Numbers as reports have them: those of a later attempt go on from the one before."""
    since: timedelta | datetime | None = None
    until: timedelta | datetime | None = None
    """Moments, or how long before the end of what is recorded."""

    @property
    def text(self) -> str:
        """For people; empty for a whole run."""
        ends = []
        if self.first is not None or self.last is not None:
            last = "the end" if self.last is None else f"{self.last:,}"
            ends.append(f"steps {self.first or 0:,} to {last}")
        for word, when in (("since", self.since), ("until", self.until)):
            if isinstance(when, timedelta):
                ends.append(f"{word} {duration(when.total_seconds())} before the end")
            elif when is not None:
                ends.append(f"{word} {when:%Y-%m-%d %H:%M:%S} UTC")
        return ", ".join(ends)
