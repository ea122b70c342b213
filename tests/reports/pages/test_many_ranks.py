"""Pages and comparisons of many ranks."""

import numpy as np
import pytest
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.comparison.compared_run import ComparedRun
from trainperf.comparison.fit_clock import FIT_STEP_S
from trainperf.core.phases import Gap, Tag
from trainperf.core.readings import STEP_S
from trainperf.reports.charts.series import SERIES, chart_of
from trainperf.reports.comparison_page import read
from trainperf.reports.run.page import load_page_data


MANY = FEW_RANKS + 4
STEPS = 90
LATE = 7
SLOW_VALIDATION = 11


def rank_spec(rank: int, *, attempt: int = 0, forward_ms: float = 10.0) -> RankSpec:
    """A rank of a job: rank 7's forward is late, rank 11 validates longest, rank 3 lacks facts."""
    rng = np.random.default_rng(100 * attempt + rank)
    late_ms = 15.0 * (rank == LATE)
    steps = []
    for index in range(STEPS):
        tail_ms = 20.0 - late_ms + float(rng.uniform(0, 0.2))
        tags = int(Tag.WARMUP) * (index < 10) | int(Tag.GC) * (index == 20 + rank)
        facts = {
            "tail_ns": round(tail_ms * MS),
            "samples": 8,
            "tokens_effective": 100 + rank,
            "resident_bytes": 1_000_000 * (1 + rank % 5),
            "loss": 1.0 / (1 + index) + rank / 100,
        }
        if index == 50 and rank == 3:
            facts |= {"tail_ns": None, "samples": None, "loss": None}  # type: ignore[dict-item]
        steps.append(
            make_step(
                index,
                tags=tags,
                facts=facts,
                forward=forward_ms + late_ms,
                backward=30.0 + tail_ms,
                loop=2.0 + float(rng.uniform(0, 0.2)),
            )
        )
    return RankSpec(
        steps=steps,
        info=make_info(rank=rank, world_size=MANY),
        gaps=[make_gap(Gap.VALIDATION, 100 + 50 * (rank == SLOW_VALIDATION), after_step=30)],
        attempt=attempt,
    )


RESTARTED = range(2, MANY - 1)
"""Ranks of a later attempt."""


@pytest.fixture(scope="module", params=[(), RESTARTED], ids=["healthy", "restarted with fewer"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A job of many ranks."""
    ranks = [rank_spec(rank) for rank in range(MANY)]
    ranks += [rank_spec(rank, attempt=1) for rank in request.param]
    return Run.open(make_run_dir(tmp_path_factory.mktemp("run"), ranks))


def test_the_late_rank_is_among_the_eight_that_are_drawn(run: Run) -> None:
    """Those whose tails are shortest and longest, of all."""
    data = load_page_data(run, now_s=0.0)
    (series,) = (each for each in SERIES if each.place == "ranks")
    tail = chart_of(series, data.groups, data.summary)

    assert len(tail.lines) <= 8
    assert f"rank {LATE}" in {line.label for line in tail.lines}


def compared(run: Run) -> ComparedRun:
    """The run as a comparison reads it."""
    ((read_once,),) = read([[run]])
    return read_once


def test_a_comparison_has_an_error_of_the_step(run: Run) -> None:
    """By the steps of sixteen of the ranks."""
    assert compared(run).estimates[STEP_S].sampling > 0


@pytest.mark.parametrize("run", [()], indirect=True)
def test_the_slowest_rank_is_that_of_the_cycle(run: Run) -> None:
    """Rank 11 validates 50 ms longer than the others: that is what the fit waits for."""
    seconds = compared(run).summary.readings[FIT_STEP_S]

    # Forward 10, backward 50, loop 2, of rank 7 forward 25 and backward 35: 62 ms and some noise.
    assert seconds.n == STEPS - 10
    assert seconds.value == pytest.approx(0.0623 + 0.150 / (STEPS - 10), rel=0.002)
