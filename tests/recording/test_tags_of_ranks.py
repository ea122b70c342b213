"""Tags of live readings: on several ranks rank 0 knows its own alone, and the tag says so."""

import pytest

from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Reading
from trainperf.recording.sinks.loggers import CurveSink


READINGS = {"step_s": Reading(value=0.05, unit="s", n=9)}


class Written:
    """A `SummaryWriter` that keeps tags alone."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.charts: list[str] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep the tag."""
        self.tags.append(tag)

    def add_custom_scalars(self, layout: dict[str, dict[str, tuple[str, list[str]]]]) -> None:
        """Keep the tags that charts show."""
        self.charts += [
            tag for charts in layout.values() for _, tags in charts.values() for tag in tags
        ]


@pytest.mark.parametrize(("ranks", "prefix"), [(1, "trainperf/"), (2, "trainperf/rank0/")])
def test_one_rank_of_several_is_not_taken_for_the_job(ranks: int, prefix: str) -> None:
    """Charts show what is written."""
    writer = Written()
    sink = CurveSink(writer)
    sink.begin(RunInfo(world_size=ranks))
    sink.readings(50, READINGS)

    assert writer.tags == [f"{prefix}step_s"]
    assert f"{prefix}step_s" in writer.charts
    assert all(chart.rpartition("/")[0] + "/" == prefix for chart in writer.charts)
