"""Base of sinks that others ask: whoever collects the readings comes for the latest, at any time.

Nothing is pushed: a reading is converted when somebody asks for it, on a thread of theirs.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

from msgspec.structs import replace

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Sink


STEPS = "steps"
"""Name of the number of finished steps, which only grows: all else are readings."""


class Exporter(Sink):
    """Keeps the latest readings of a rank while its fit runs, and on rank 0 those over all ranks.

    Args:
        labels: Of every value; `rank` is always there.
    """

    def __init__(self, labels: Mapping[str, str] | None) -> None:
        self._own_labels = dict(labels or {})
        self._labels = dict[str, str | int]()
        self._readings: dict[str, Mapping[str, Reading]] = {}
        """What their names begin with, to readings."""
        self._steps: int | None = None

    def begin(self, info: RunInfo) -> None:
        """Nothing of an earlier fit is left."""
        self._labels = {**self._own_labels, "rank": info.rank}
        self._readings, self._steps = {}, 0

    def rows(self, rows: Sequence[Row]) -> None:
        """Count them."""
        self._steps = (self._steps or 0) + len(rows)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest."""
        self.keep("", readings)

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest over all ranks, as `all_ranks_<reading>`."""
        self.keep("all_ranks_", readings)

    def keep(self, kind: str, readings: Mapping[str, Reading]) -> None:
        """These are the latest whose names begin so."""
        self._readings[kind] = dict(readings)

    def close(self) -> None:
        """There is nothing to be had any more."""
        self._readings, self._steps = {}, None

    def latest(self) -> dict[str, Reading]:
        """What has a value now; titles say what it is."""
        if self._steps is None:
            return {}
        latest = {STEPS: Reading(value=self._steps, unit="", title="Finished steps")}
        for kind, readings in list(self._readings.items()):
            of = "Over all ranks: " if kind else ""
            for name, reading in readings.items():
                if reading.value is not None:
                    title = f"{of}{described(name, reading.title)}"
                    latest[f"{kind}{name}"] = replace(reading, title=title)
        return latest


def package(module: str, needed: str) -> ModuleType:
    """A package that does not come with trainperf.

    Raises:
        ConfigError: It is not installed: *needed* says who needs it, and how to get it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(needed) from error
