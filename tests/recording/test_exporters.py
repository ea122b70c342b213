"""Readings for those who collect them: observed by OpenTelemetry, whose exporters pass them on."""

import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.described import described
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.opentelemetry import OpenTelemetrySink


READINGS = {
    "step_s": Reading(value=0.05, unit="s", n=9),
    "samples_per_s": Reading(value=160.0, unit="1/s", n=9),
    "mfu": Reading(value=None, unit="1", reason="not measured"),
}


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


def test_nothing_of_an_earlier_fit_is_left() -> None:
    """One sink, two fits."""
    reader = InMemoryMetricReader()
    sink = OpenTelemetrySink(MeterProvider(metric_readers=[reader]))
    for rank in range(2):
        sink.begin(RunInfo(rank=rank))
        assert observed(reader) == {("trainperf.steps", ""): (0, {"rank": rank})}
        sink.readings(4, READINGS)
        sink.close()


def test_each_metric_says_what_it_is() -> None:
    """By the definition of its reading; a meter of the user's own by its title."""
    reader = InMemoryMetricReader()
    sink = OpenTelemetrySink(MeterProvider(metric_readers=[reader]))
    sink.begin(RunInfo())
    sink.readings(7, {**READINGS, "ratio": Reading(value=2.0, unit="1", title="my ratio")})

    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    assert {metric.name: metric.description for scope in scopes for metric in scope.metrics} == {
        "trainperf.steps": "Finished steps",
        "trainperf.step_s": described("step_s"),
        "trainperf.samples_per_s": described("samples_per_s"),
        "trainperf.ratio": "my ratio",
    }


def test_every_reading_is_described_by_a_sentence_of_its_own() -> None:
    """Its definition's first: no name with spaces in it, and no two alike."""
    sentences = [described(meter.name) for meter in METERS]

    assert all(len(sentence.split()) > 3 for sentence in sentences)
    assert len(set(sentences)) == len(METERS)


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


def test_without_its_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is made, not in the fit."""
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install 'trainperf\["):
        OpenTelemetrySink()
