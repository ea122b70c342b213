"""Sink for OpenTelemetry: the latest readings of each rank as observable gauges of its metrics API.

The user's own `MeterProvider` decides where they go and how often: its exporter asks, on its own
thread.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Sink


_UCUM = {"B": "By", "B/s": "By/s"}
"""Units that have another name in OpenTelemetry."""


class OpenTelemetrySink(Sink):
    """Offers readings as gauges `trainperf.<reading>`, and finished steps as `trainperf.steps`.

    Attributes of each value are `rank` and those given.  Readings are those of the last log
    interval, as in TensorBoard; after the fit there are none.

    Args:
        provider: A `MeterProvider`; by default the global one, which an SDK or an agent has set.
            Where nobody has, values go nowhere.
        attributes: Added to every value, e.g. `{"job": "pretraining"}`.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    name = "OpenTelemetry"

    def __init__(
        self, provider: object | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._api = _api()
        given: Any = provider if provider is not None else self._api.get_meter_provider()
        self._meter = given.get_meter("trainperf")
        self._own_attributes = dict(attributes or {})
        self._attributes = dict[str, str | int]()
        self._readings: Mapping[str, Reading] = {}
        self._offered = set[str]()
        self._steps = 0
        self._running = False

    def begin(self, info: RunInfo) -> None:
        """Offer the number of steps."""
        self._attributes = {**self._own_attributes, "rank": info.rank}
        self._readings, self._steps, self._running = {}, 0, True
        if "steps" not in self._offered:
            self._offered.add("steps")
            self._meter.create_observable_counter(
                "trainperf.steps", callbacks=[self._count], description="Finished steps"
            )

    def rows(self, rows: Sequence[Row]) -> None:
        """Count them."""
        self._steps += len(rows)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest; one that has a value for the first time is offered from now on."""
        self._readings = dict(readings)
        for name, reading in readings.items():
            if reading.value is not None and name not in self._offered:
                self._offered.add(name)
                self._meter.create_observable_gauge(
                    f"trainperf.{name}",
                    callbacks=[self._observed(name)],
                    unit=_UCUM.get(reading.unit, reading.unit),
                    description=described(name, reading.title),
                )

    def close(self) -> None:
        """Nothing is observed any more."""
        self._running = False

    def _count(self, _: object) -> list[object]:
        return [self._api.Observation(self._steps, self._attributes)] if self._running else []

    def _observed(self, name: str) -> Callable[[object], list[object]]:
        return partial(self._observe, name)

    def _observe(self, name: str, _: object) -> list[object]:
        reading = self._readings.get(name)
        if not self._running or reading is None or reading.value is None:
            return []
        return [self._api.Observation(float(reading.value), self._attributes)]


def _api() -> ModuleType:
    try:
        return import_module("opentelemetry.metrics")
    except ImportError as error:
        raise ConfigError(
            "OpenTelemetrySink needs OpenTelemetry: pip install 'trainperf[opentelemetry]'"
        ) from error
