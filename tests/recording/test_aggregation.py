"""Live readings over all ranks: what is sent, and what rank 0 makes of it."""

from collections.abc import Mapping

import numpy as np
import pytest
from support.runs import make_steps

from trainperf.core.steps.block import StepBlock, StepSchema, row_of
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.recording.aggregation import AggregationSink, length, packed, unpacked
from trainperf.recording.guard import Guard
from trainperf.recording.rank_group import RankGroup, Vector
from trainperf.recording.sinks.base import Sink


COLUMNS = ("tail_ns", "tokens_effective", "tokens_padded", "samples")
INFO = RunInfo(columns=COLUMNS, world_size=2)
SCHEMA = StepSchema(COLUMNS, "cpu")


class Group(RankGroup):
    """Rank 0's, to which rank 1 answers with what it is given."""

    def __init__(self, answer: Vector | None) -> None:
        super().__init__(0, 2, length(METERS), Guard())
        self.idle = True
        self.answer = answer
        self.sent: list[Vector] = []

    def begin(self) -> None:
        """Nobody to look for."""

    def send(self, vector: Vector) -> None:
        """Keep it, and hold it back where there is no answer yet."""
        self.sent.append(vector)
        self.idle = self.answer is not None

    def take(self) -> Vector | None:
        """Both rows."""
        if self.answer is None or not self.sent:
            return None
        return np.stack([self.sent[-1], self.answer])


class Shown(Sink):
    """Keeps readings over all ranks."""

    name = "shown"

    def __init__(self) -> None:
        self.readings_of_all: list[Mapping[str, Reading]] = []

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep them."""
        del step
        self.readings_of_all.append(readings)


def rows_of(number: int, ms: float, tokens: int) -> list[tuple[float | None, ...]]:
    """So many equal steps, with a tail of a millisecond."""
    facts = {"tail_ns": 1e6, "tokens_effective": tokens, "tokens_padded": 2 * tokens, "samples": 4}
    steps = make_steps(number, warmup=0, forward=ms, facts=facts)
    return [row_of(step, SCHEMA) for step in steps]


def folds(number: int, ms: float, tokens: int) -> Fold:
    """Of all meters over such steps."""
    fold = Fold(METERS)
    fold.observe(StepBlock.from_rows(SCHEMA, rows_of(number, ms, tokens)))
    return fold


def test_a_summary_is_as_long_for_any_number_of_steps() -> None:
    """And comes back as it was, percentiles apart."""
    for number in (1, 5000):
        fold, rest = folds(number, 10, 100), Fold(())
        vector = packed(fold, rest, 1)
        assert len(vector) == length(METERS)
        back = unpacked(vector, (fold, rest))
        assert back is not None
        assert back[0].reduction("step_mean_s") == fold.reduction("step_mean_s")
        assert back[0].reduction("allreduce_tail_fraction") == fold.reduction(
            "allreduce_tail_fraction"
        )
        assert back[0].reduction("step_s") is None
        assert back[0].steps == number


def test_a_summary_of_other_meters_is_not_read() -> None:
    """A rank of another release would be taken for what it is not."""
    fold = folds(50, 10, 100)

    assert unpacked(packed(fold, Fold(()), 1), (Fold(METERS[:-1]), Fold(METERS[-1:]))) is not None
    assert unpacked(packed(fold, Fold(()), 1), (Fold(METERS[:-1]), Fold(()))) is None


def sink_of(answer: Vector | None) -> tuple[AggregationSink, Shown, Group]:
    """Rank 0's, as it has begun."""
    shown, group = Shown(), Group(answer)
    sink = AggregationSink(METERS, [shown], Guard(), group)
    sink.begin(INFO)
    return sink, shown, group


def window(sink: AggregationSink, number: int = 50, ms: float = 10, tokens: int = 100) -> None:
    """Steps, and the end of a window."""
    sink.rows(rows_of(number, ms, tokens))
    sink.readings(0, {})


def test_readings_over_all_ranks_are_those_that_a_report_makes_of_their_files() -> None:
    """Of the same steps: means pooled, rates added up."""
    sink, shown, group = sink_of(None)
    window(sink)
    other = AggregationSink(METERS, [], Guard(), answering := Group(None))
    other.begin(INFO)
    window(other, ms=20, tokens=300)
    group.answer, group.idle = answering.sent[0], True
    sink.readings(0, {})

    offline = readings([folds(50, 10, 100), folds(50, 20, 300)], INFO)
    [live] = shown.readings_of_all
    for name in (
        "step_mean_s",
        "allreduce_tail_fraction",
        "data_wait_fraction",
        "padding_fraction",
    ):
        assert live[name].value == pytest.approx(offline[name].value)
    assert live["step_mean_s"].per_rank == (pytest.approx(0.010), pytest.approx(0.020))
    assert live["effective_tokens_per_s"].value == pytest.approx(100 / 0.010 + 300 / 0.020)


def test_windows_that_wait_for_a_rank_are_sent_together() -> None:
    """Nothing is lost while one gather is in flight, and no second one is begun."""
    sink, _, group = sink_of(None)
    for _ in range(4):
        window(sink)
    assert len(group.sent) == 1
    group.idle = True
    sink.readings(0, {})

    assert [vector[1] for vector in group.sent] == [1, 4]
    assert [vector[2] for vector in group.sent] == [50, 150]


def test_how_many_windows_came_together_is_noted_on_rank_0() -> None:
    """With what the last ones wait for."""
    sink, _, _ = sink_of(None)
    window(sink)

    assert sink.notes() == {
        "aggregation": "0 of 1 windows were aggregated over 2 ranks while training; not every rank "
        "has come"
    }
