"""Live readings over all ranks: what is put into the store, and what rank 0 makes of it."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
import torch.distributed as dist
from support.runs import make_steps

from trainperf.core.stats.reductions import Rate, Ratio, Total
from trainperf.core.steps.block import StepBlock, StepSchema, row_of
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS, Scope
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import numbers_of
from trainperf.recording.aggregation import AggregationSink, Sums
from trainperf.recording.guard import Guard
from trainperf.recording.sinks.base import Sink


COLUMNS = ("tail_ns", "tokens_effective", "tokens_padded", "samples")
SCHEMA = StepSchema(COLUMNS, "cpu")


class Shown(Sink):
    """Keeps readings over all ranks."""

    name = "shown"

    def __init__(self) -> None:
        self.readings_of_all: list[Mapping[str, Reading]] = []

    def all_ranks(self, step: int, readings: Mapping[str, Reading]) -> None:
        """Keep them."""
        del step
        self.readings_of_all.append(readings)


class Ranks:
    """Two ranks in one process, over a store in memory."""

    def __init__(self, store: dist.Store | None = None) -> None:
        self.store = store or dist.HashStore()
        self.store.set_timeout(timedelta(seconds=1))
        self.shown = Shown()
        self.first, self.second = (
            AggregationSink(METERS, others, Guard(), lambda: self.store)
            for others in ([self.shown], [])
        )
        for rank, sink in enumerate((self.first, self.second)):
            sink.begin(info(rank))

    def live(self) -> Mapping[str, Reading]:
        """What rank 0 has shown last."""
        return self.shown.readings_of_all[-1]


def info(rank: int) -> RunInfo:
    """Of one of two ranks."""
    return RunInfo(columns=COLUMNS, world_size=2, rank=rank)


def rows_of(number: int, ms: float, tokens: int) -> list[tuple[float | None, ...]]:
    """So many equal steps, with a tail of a millisecond."""
    facts = {"tail_ns": 1e6, "tokens_effective": tokens, "tokens_padded": 2 * tokens, "samples": 4}
    steps = make_steps(number, warmup=0, forward=ms, facts=facts)
    return [row_of(step, SCHEMA) for step in steps]


def fold_of(number: int, ms: float, tokens: int) -> Fold:
    """Of all meters over such steps."""
    fold = Fold(METERS)
    fold.observe(StepBlock.from_rows(SCHEMA, rows_of(number, ms, tokens)))
    return fold


def window(sink: AggregationSink, number: int = 50, ms: float = 10, tokens: int = 100) -> None:
    """Steps, and the end of a window."""
    sink.rows(rows_of(number, ms, tokens))
    sink.readings(0, {})


def test_sums_are_as_long_for_any_number_of_steps() -> None:
    """And make the same statistics, percentiles apart."""
    texts = []
    for number in (1, 5000):
        fold = fold_of(number, 10, 100)
        sums = Sums.of(fold)
        texts.append(sums.text())
        back = sums.since(Sums(), ())
        for name in ("step_mean_s", "allreduce_tail_fraction"):
            assert back[name] == fold.reduction(name)
        assert "step_s" not in back
        assert sums.steps == number

    assert len(texts[1]) < 1.5 * len(texts[0])


def test_what_is_subtracted_is_a_sum() -> None:
    """A maximum of the steps since cannot be told from two of all steps."""
    fold = fold_of(50, 10, 100)
    windowed = [fold.reduction(meter.name) for meter in METERS if meter.scope is not Scope.ALL]

    assert {type(kept).__mro__[-3] for kept in windowed if numbers_of(kept)} <= {Ratio, Rate, Total}


def test_readings_over_all_ranks_are_those_that_a_report_makes_of_their_files() -> None:
    """Of the same steps: means pooled, rates added up."""
    ranks = Ranks()
    window(ranks.second, ms=20, tokens=300)
    window(ranks.first)

    offline = readings([fold_of(50, 10, 100), fold_of(50, 20, 300)], info(0))
    live = ranks.live()
    for name in (
        "step_mean_s",
        "allreduce_tail_fraction",
        "data_wait_fraction",
        "padding_fraction",
    ):
        assert live[name].value == pytest.approx(offline[name].value)
    assert live["step_mean_s"].per_rank == (pytest.approx(0.010), pytest.approx(0.020))
    assert live["effective_tokens_per_s"].value == pytest.approx(100 / 0.010 + 300 / 0.020)


def test_each_reading_stands_on_the_steps_since_the_last() -> None:
    """Slower steps show at once; what is of the whole fit goes on."""
    ranks = Ranks()
    for ms in (10, 30):
        window(ranks.second, ms=ms)
        window(ranks.first, ms=ms)
    live = ranks.live()

    assert live["step_mean_s"].value == pytest.approx(0.030)
    assert live["step_mean_s"].n == 50
    assert live["data_wait_all_fraction"].n == 100


def test_windows_that_wait_for_a_rank_are_shown_together() -> None:
    """Nothing is shown of one rank alone, and nothing of a rank is lost."""
    ranks = Ranks()
    window(ranks.second)
    for _ in range(3):
        window(ranks.first, ms=20)
    assert len(ranks.shown.readings_of_all) == 1
    assert ranks.first.notes() == {
        "aggregation": "1 of 3 windows were aggregated over 2 ranks while training; nothing new "
        "came from rank 1"
    }
    for ms in (30, 50):
        window(ranks.second, ms=ms)
    window(ranks.first, ms=20)

    assert len(ranks.shown.readings_of_all) == 2
    assert ranks.live()["step_mean_s"].per_rank == (pytest.approx(0.020), pytest.approx(0.040))
    assert ranks.first.notes() == {
        "aggregation": "4 of 4 windows were aggregated over 2 ranks while training"
    }
    assert ranks.second.notes() == {}


def test_a_rank_that_never_comes_is_not_waited_for() -> None:
    """Its key is there from the beginning, and empty."""
    ranks = Ranks()
    for _ in range(3):
        window(ranks.first)

    assert ranks.shown.readings_of_all == []
    assert "0 of 3 windows" in ranks.first.notes()["aggregation"]


def test_a_fit_reads_nothing_of_the_one_before_it() -> None:
    """In the same job, and so in the same store."""
    ranks = Ranks()
    window(ranks.second)
    later = Ranks(ranks.store)
    window(later.first)

    assert later.shown.readings_of_all == []


class Broken(dist.Store):
    """A store whose server has gone."""

    def add(self, key: str, amount: int) -> int:
        """It was still there."""
        del key
        return amount

    def set(self, key: str, value: str) -> None:
        """Nobody answers."""
        raise RuntimeError(f"[TCPStore.cpp:12] Broken pipe for {key}. More about it")


def test_a_store_that_is_gone_ends_the_aggregation_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files have everything; why is in the notes."""
    ranks = Ranks()
    window(ranks.second)
    monkeypatch.setattr(ranks.first, "_store", Broken())
    for _ in range(2):
        window(ranks.first)

    assert ranks.first.notes() == {
        "aggregation": "0 of 2 windows were aggregated over 2 ranks while training; the job's "
        "store is gone (Broken pipe for 0)"
    }


def test_without_a_second_connection_to_the_store_nothing_is_put() -> None:
    """As in torch before it could open one: training's own connection is left alone."""
    sink = AggregationSink(METERS, [], Guard(), lambda: None)
    sink.begin(info(0))
    window(sink)

    assert "second connection" in sink.notes()["aggregation"]
