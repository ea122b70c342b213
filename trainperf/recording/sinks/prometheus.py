"""Sink for Prometheus: the latest readings of each rank, served where a Prometheus server scrapes.

Nothing is pushed: a reading is converted when somebody asks for it, on the server's own thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from types import ModuleType

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Sink


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


class PrometheusSink(Sink):
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
        self._client = _client()
        self.port = port
        """Where it is served, once the fit has begun."""
        self._first_port = port
        self._address = address
        self._own_labels = dict(labels or {})
        self._labels = dict[str, str]()
        self._readings: dict[str, Mapping[str, Reading]] = {}
        """The latest of each kind."""
        self._steps = 0
        self._served = ExitStack()

    def begin(self, info: RunInfo) -> None:
        """Listen; a port that is taken switches this sink off, and the log says so."""
        self.close()
        self._labels = {**self._own_labels, "rank": str(info.rank)}
        self._readings, self._steps = {}, 0
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

    def rows(self, rows: Sequence[Row]) -> None:
        """Count them."""
        self._steps += len(rows)

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest."""
        self._readings[""] = dict(readings)

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep the latest over all ranks, as `trainperf_all_ranks_<reading>`."""
        self._readings["all_ranks_"] = dict(readings)

    def close(self) -> None:
        """Listen no more: a scraper then sees that the training is over."""
        self._served.close()

    def collect(self) -> Iterator[object]:
        """Metrics of this moment, as `prometheus_client` asks a collector for them."""
        families = self._client.metrics_core
        names = list(self._labels)
        values = list(self._labels.values())
        steps = families.CounterMetricFamily("trainperf_steps", "Finished steps", labels=names)
        steps.add_metric(values, self._steps)
        yield steps
        for kind, readings in list(self._readings.items()):
            of = "Over all ranks: " if kind else ""
            for name, reading in readings.items():
                if reading.value is not None:
                    about = f"{of}{described(name, reading.title)}"
                    gauge = families.GaugeMetricFamily(
                        f"trainperf_{kind}{metric_name(name, reading.unit)}", about, labels=names
                    )
                    gauge.add_metric(values, float(reading.value))
                    yield gauge


def metric_name(name: str, unit: str) -> str:
    """A reading's name as Prometheus wants it, with its base unit in full at the end.

    E.g. `step_s` is `step_seconds`, `samples_per_s` is `samples_per_second`.
    """
    short, full = _ENDINGS.get(unit, ("", ""))
    if f"{full}_per_" in name:  # the step, or the token, is a part of its unit
        return name
    return name.removesuffix(short) + full


def _client() -> ModuleType:
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        raise ConfigError(
            "PrometheusSink needs prometheus-client: pip install 'trainperf[prometheus]'"
        ) from error
