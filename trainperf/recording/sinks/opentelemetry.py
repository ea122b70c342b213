"""Sink for OpenTelemetry: the latest readings of each rank as observable gauges of its metrics API.

The user's own `MeterProvider` decides where they go and how often: its exporter asks, on its own
thread.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.exporter import STEPS, Exporter, package


_UCUM = {"B": "By", "B/s": "By/s"}
"""Units that have another name in OpenTelemetry."""


class OpenTelemetrySink(Exporter):
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
        super().__init__(attributes)
        self._api = package(
            "opentelemetry.metrics",
            "OpenTelemetrySink needs OpenTelemetry: pip install 'trainperf[opentelemetry]'",
        )
        given: Any = provider if provider is not None else self._api.get_meter_provider()
        self._meter = given.get_meter("trainperf")
        self._offered = set[str]()

    def begin(self, info: RunInfo) -> None:
        """Offer the number of steps."""
        super().begin(info)
        self._offer()

    def keep(self, kind: str, readings: Mapping[str, Reading]) -> None:
        """Keep the latest; one that has a value for the first time is offered from now on."""
        super().keep(kind, readings)
        self._offer()

    def _offer(self) -> None:
        for name, reading in self.latest().items():
            if name not in self._offered:
                self._offered.add(name)
                create = (
                    self._meter.create_observable_counter
                    if name == STEPS
                    else self._meter.create_observable_gauge
                )
                create(
                    f"trainperf.{name}",
                    callbacks=[partial(self._observe, name)],
                    unit=_UCUM.get(reading.unit, reading.unit),
                    description=reading.title,
                )

    def _observe(self, name: str, _: object) -> list[object]:
        reading = self.latest().get(name)
        return [] if reading is None else [self._api.Observation(reading.value, self._labels)]
