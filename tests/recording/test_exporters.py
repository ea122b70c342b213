"""Readings for those who collect them: scraped by Prometheus, observed by OpenTelemetry."""

import sys
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import RunInfo
from trainperf.loop import LoopMonitor
from trainperf.meters import METERS
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.opentelemetry import OpenTelemetrySink
from trainperf.recording.sinks.prometheus import PrometheusSink, metric_name


READINGS = {
    "step_s": Reading(value=0.05, unit="s", n=9),
    "samples_per_s": Reading(value=160.0, unit="1/s", n=9),
    "mfu": Reading(value=None, unit="1", reason="not measured"),
}


def scraped(sink: PrometheusSink) -> dict[tuple[str, str], float]:
    """Metric and rank to what the endpoint says."""
    with urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels["rank"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def helped(sink: PrometheusSink) -> dict[str, str]:
    """Metric to what the endpoint says that it is."""
    with urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {family.name: family.documentation for family in families}


@pytest.fixture
def served() -> Iterator[PrometheusSink]:
    """A sink of rank 3 that listens at a free port."""
    sink = PrometheusSink(port=0, labels={"job": "test"})
    sink.begin(RunInfo(rank=3, world_size=8))
    yield sink
    sink.close()


def test_a_scrape_gets_the_latest_values_in_base_units(served: PrometheusSink) -> None:
    """What is not measured has no metric."""
    served.rows([(0.0,)] * 7)
    served.readings(7, READINGS)

    assert scraped(served) == {
        ("trainperf_steps_total", "3"): 7.0,
        ("trainperf_step_seconds", "3"): 0.05,
        ("trainperf_samples_per_second", "3"): 160.0,
    }
    served.all_ranks(7, {"step_s": Reading(value=0.06, unit="s")})
    assert scraped(served)["trainperf_all_ranks_step_seconds", "3"] == 0.06


def test_the_endpoint_ends_with_the_fit_and_comes_back_with_the_next(
    served: PrometheusSink,
) -> None:
    """Nothing of the first is left."""
    served.readings(7, READINGS)
    address = f"http://127.0.0.1:{served.port}/metrics"
    served.close()
    with pytest.raises(URLError):
        urlopen(address, timeout=5)

    served.begin(RunInfo())
    assert scraped(served) == {("trainperf_steps_total", "0"): 0.0}


def test_each_rank_of_a_host_has_its_own_port(served: PrometheusSink) -> None:
    """The second of two: the next one."""
    free, second = served.port, PrometheusSink(port=served.port - 1)
    served.close()
    second.begin(RunInfo(rank=1, world_size=2, hardware={"local_world_size": 2}))
    try:
        assert second.port == free
    finally:
        second.close()


def test_a_port_that_is_taken_costs_the_sink_and_not_the_training(
    served: PrometheusSink, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says which port, and what else to pass."""
    sinks = [PrometheusSink(port=served.port)]
    with LoopMonitor(None, sinks=sinks, report=False) as monitor:
        for _ in monitor.batches([1] * 5):
            monitor.end_step()

    assert "Prometheus" in caplog.text
    assert f"(127.0.0.1:{served.port})" in caplog.text
    assert "PrometheusSink(port=…)" in caplog.text


def test_each_metric_says_what_it_is(served: PrometheusSink) -> None:
    """By the definition of its reading; a meter of the user's own by its title."""
    own = {"ratio": Reading(value=2.0, unit="1", title="my ratio")}
    served.readings(7, {**READINGS, **own})
    served.all_ranks(7, READINGS)

    assert helped(served) == {
        "trainperf_steps": "Finished steps",
        "trainperf_step_seconds": described("step_s"),
        "trainperf_samples_per_second": described("samples_per_s"),
        "trainperf_ratio": "my ratio",
        "trainperf_all_ranks_step_seconds": f"Over all ranks: {described('step_s')}",
        "trainperf_all_ranks_samples_per_second": f"Over all ranks: {described('samples_per_s')}",
    }


def test_every_reading_is_described_by_a_sentence_of_its_own() -> None:
    """Its definition's first: no name with spaces in it, and no two alike."""
    sentences = [described(meter.name) for meter in METERS]

    assert all(len(sentence.split()) > 3 for sentence in sentences)
    assert len(set(sentences)) == len(METERS)


@pytest.mark.parametrize(
    ("name", "unit", "metric"),
    [
        ("step_s", "s", "step_seconds"),
        ("h2d_bytes_per_s", "B/s", "h2d_bytes_per_second"),
        ("memory_peak_bytes", "B", "memory_peak_bytes"),
        ("overflow_rate", "1", "overflow_rate"),
        ("memory_slope_bytes_per_step", "B", "memory_slope_bytes_per_step"),
    ],
)
def test_names_have_their_unit_at_the_end(name: str, unit: str, metric: str) -> None:
    """In full, as Prometheus' naming rules want it."""
    assert metric_name(name, unit) == metric


def test_a_reader_of_opentelemetry_observes_values_while_the_fit_runs() -> None:
    """With unit and attributes; after it, none."""
    reader = InMemoryMetricReader()
    sink = OpenTelemetrySink(MeterProvider(metric_readers=[reader]), {"job": "test"})
    sink.begin(RunInfo(rank=2))
    sink.rows([(0.0,)] * 4)
    sink.readings(4, READINGS)

    assert observed(reader) == {
        ("trainperf.steps", ""): (4, {"job": "test", "rank": 2}),
        ("trainperf.step_s", "s"): (0.05, {"job": "test", "rank": 2}),
        ("trainperf.samples_per_s", "1/s"): (160.0, {"job": "test", "rank": 2}),
    }
    sink.close()
    assert observed(reader) == {}


def observed(
    reader: InMemoryMetricReader,
) -> dict[tuple[str, str], tuple[float, dict[str, object]]]:
    """Metric and unit to its value and attributes."""
    data = reader.get_metrics_data()
    return {
        (metric.name, metric.unit): (point.value, dict(point.attributes))
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_both_take_what_a_real_loop_gives() -> None:
    """The same values, whichever readings there are by then."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    served, told = PrometheusSink(port=0), OpenTelemetrySink(provider)
    with LoopMonitor(None, sinks=[served, told], report=False, log_every_n_steps=20) as monitor:
        for number, _ in enumerate(monitor.batches([1] * 60)):
            if number == 59:
                pulled, pushed = scraped(served), observed(reader)
            monitor.end_step()

    assert pulled["trainperf_steps_total", "0"] > 0
    assert len(pulled) > 1
    assert sorted(pulled.values()) == sorted(value for value, _ in pushed.values())


@pytest.mark.parametrize("sink", [PrometheusSink, OpenTelemetrySink])
def test_without_its_package_the_remedy_is_named(
    sink: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is made, not in the fit."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'trainperf\["):
        sink()
