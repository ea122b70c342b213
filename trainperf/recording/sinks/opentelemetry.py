"""Sink for OpenTelemetry: the latest readings of each rank as observable gauges of its metrics API.

The user's own `MeterProvider` decides where they go and how often: its exporter asks, on its own
thread.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Sink


_UCUM = {"B": "By", "B/s": "By/s"}
"""Units that have another name in OpenTelemetry."""

_STEPS = "steps"


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
        try:
            self._api = import_module("opentelemetry.metrics")
        except ImportError as error:
            raise ConfigError(
                "OpenTelemetrySink needs OpenTelemetry: pip install 'trainperf[opentelemetry]'"
            ) from error
        given: Any = provider if provider is not None else self._api.get_meter_provider()
        self._meter = given.get_meter("trainperf")
        self._attributes: dict[str, str | int] = {**(attributes or {})}
        self._latest: dict[str, float | None] = {}
        self._offered = set[str]()

    def begin(self, info: RunInfo) -> None:
        """Offer the number of steps; nothing of an earlier fit is left."""
        self._attributes["rank"] = info.rank
        self._latest = {_STEPS: 0}
        self._offer(self._meter.create_observable_counter, _STEPS, "", "Finished steps")

    def rows(self, rows: Sequence[Row]) -> None:
        """Count them."""
        self._latest[_STEPS] = (self._latest.get(_STEPS) or 0) + len(rows)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest; one that has a value for the first time is offered from now on."""
        for name, reading in readings.items():
            self._latest[name] = reading.value
            if reading.value is not None:
                unit = _UCUM.get(reading.unit, reading.unit)
                title = described(name, reading.title)
                self._offer(self._meter.create_observable_gauge, name, unit, title)

    def close(self) -> None:
        """There is nothing to be had any more."""
        self._latest = {}

    def _offer(self, create: Callable[..., object], name: str, unit: str, title: str) -> None:
        if name not in self._offered:
            self._offered.add(name)
            observe = partial(self._observe, name)
            create(f"trainperf.{name}", callbacks=[observe], unit=unit, description=title)

    def _observe(self, name: str, _: object) -> list[object]:
        value = self._latest.get(name)
        return [] if value is None else [self._api.Observation(value, self._attributes)]
