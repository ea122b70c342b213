"""Sink for Prometheus: the latest readings of each rank, served where its server scrapes."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import RunInfo
from trainperf.recording.sinks.exporter import STEPS, Exporter, package


PORT = 9464
"""Usual port of exporters that are no server of their own."""

_ENDINGS = {
    "s": ("_s", "_seconds"),
    "B": ("_bytes", "_bytes"),
    "1/s": ("_per_s", "_per_second"),
    "B/s": ("_bytes_per_s", "_bytes_per_second"),
    "J": ("", "_joules"),
    "W": ("", "_watts"),
    "Hz": ("", "_hertz"),
}
"""Unit to how the name of a reading ends, and how that of a metric does."""


class PrometheusSink(Exporter):
    """Serves readings at `http://ADDRESS:PORT/metrics` while the fit runs.

    A gauge `trainperf_<reading>` in base units, e.g. `trainperf_step_seconds`, for each reading
    that has a value now; `trainperf_steps_total` counts finished steps, and stands still where a
    training hangs.  Readings are those of the last log interval, as in TensorBoard.

    Args:
        port: Of the first rank of a host; the host's next rank has the next port.  0 chooses a
            free one, see `port` of the running sink.
        address: Interface to listen on; the default is this machine only.  There is no password.
        labels: Added to every metric, e.g. `{"job": "pretraining"}`; `rank` is always there.

    Raises:
        ConfigError: `prometheus-client` is not installed, or the port is none.
    """

    name = "Prometheus"

    def __init__(
        self,
        port: int = PORT,
        address: str = "127.0.0.1",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if not 0 <= port < 2**16:
            raise ConfigError(f"port={port}: must be between 0 and 65535")
        super().__init__(labels)
        self._client = package(
            "prometheus_client",
            "PrometheusSink needs prometheus-client: pip install 'trainperf[prometheus]'",
        )
        self.port = port
        """Where it is served, once the fit has begun."""
        self._first_port = port
        self._address = address
        self._served = ExitStack()

    def begin(self, info: RunInfo) -> None:
        """Listen; a port that is taken switches this sink off, and the log says so."""
        self.close()
        super().begin(info)
        registry = self._client.CollectorRegistry()
        registry.register(self)
        on_host = int(info.hardware.get("local_world_size") or 1)
        wanted = self._first_port and self._first_port + info.rank % on_host
        try:
            server, thread = self._client.start_http_server(wanted, self._address, registry)
        except OSError as error:
            raise OSError(
                f"{error.strerror or error} ({self._address}:{wanted}); choose another port, "
                "PrometheusSink(port=…), or 0 for any that is free"
            ) from error
        self.port = server.server_port
        for act in (partial(thread.join, 1.0), server.server_close, server.shutdown):
            self._served.callback(act)  # called in reverse

    def close(self) -> None:
        """Listen no more: a scraper then sees that the training is over."""
        self._served.close()
        super().close()

    def collect(self) -> Iterator[object]:
        """Metrics of this moment, as `prometheus_client` asks a collector for them."""
        families = self._client.metrics_core
        for name, reading in self.latest().items():
            kind = families.CounterMetricFamily if name == STEPS else families.GaugeMetricFamily
            metric = f"trainperf_{metric_name(name, reading.unit)}"
            family = kind(metric, reading.title, labels=list(self._labels))
            family.add_metric([str(label) for label in self._labels.values()], reading.value)
            yield family


def metric_name(name: str, unit: str) -> str:
    """A reading's name as Prometheus wants it, with its base unit in full at the end.

    E.g. `step_s` is `step_seconds`, `samples_per_s` is `samples_per_second`.
    """
    short, full = _ENDINGS.get(unit, ("", ""))
    if f"{full}_per_" in name:  # the step, or the token, is a part of its unit
        return name
    return name.removesuffix(short) + full
