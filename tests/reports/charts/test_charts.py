"""What the charts draw: the run's own numbers, and a reason where there are none."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.cases import CASES
from support.runs import MS, RankSpec, make_info, make_run_dir, make_step
from support.tab import a_run, steps_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import PHASES, Tag
from trainperf.core.steps.records import StepRecord
from trainperf.reports.charts.columns import MOST_GROUPS, Groups, SeriesFold
from trainperf.reports.charts.lines import LineChart
from trainperf.reports.charts.over_time import over_time
from trainperf.reports.charts.series import SERIES, chart_of


def groups_of(run: Path, most: int = MOST_GROUPS, lead: int | None = None) -> Groups:
    """A run's columns, in so many groups of steps at most."""
    fold = SeriesFold(lead, most=most)
    for blocks in Replay(Run.open(run)).blocks():
        fold.observe(JobBlock.of(blocks))
    return fold.groups


def charts(run: Path, most: int = MOST_GROUPS) -> dict[str, LineChart]:
    """The charts over the steps, by title."""
    groups, summary = groups_of(run, most), summarize(Run.open(run))
    return {series.title: chart_of(series, groups, summary) for series in SERIES}


def drawn(path: Path, steps: Sequence[StepRecord], most: int = MOST_GROUPS) -> str:
    """The breakdown of a run of these steps."""
    (chart,) = over_time(groups_of(a_run(path, steps=steps), most))
    return chart.picture


def frame_ms(picture: str) -> float:
    """Where the frame of the breakdown ends, by its highest tick."""
    ticks = re.findall(r'<span style="top:([\d.]+)px">([\d,]+) ms</span>', picture)
    y, tick = min((float(y), float(tick.replace(",", ""))) for y, tick in ticks)
    return tick / (1 - y / 240)


def test_groups_of_a_long_run_keep_the_mean_and_the_slowest_step(tmp_path: Path) -> None:
    """5,000 steps in 625 groups of eight; step 4,321 takes a second."""
    steps = steps_of(5000)
    steps[4321] = make_step(4321, start_ns=1, forward=1000)
    picture = drawn(tmp_path, steps)

    others = sum(steps[4320 + n].wall_s for n in range(8) if n != 1)
    assert (1.0 + others) / 8 == pytest.approx(0.1695, rel=1e-3)
    assert "8 steps from 4,320: 170 ms on average, slowest 1.00 s (step 4,321)" in picture
    assert "step 4,321: 1.00 s, beyond the picture" in picture


def test_the_frame_holds_the_steady_steps_and_no_few_that_are_very_slow(tmp_path: Path) -> None:
    """A long first step is beyond it; of slow steady steps three times the median is the most."""
    first = [make_step(0, tags=int(Tag.WARMUP), forward=60_000), *steps_of(99, first=1)]
    slow = steps_of(100)
    slow[80] = make_step(80, forward=5000)

    assert frame_ms(drawn(tmp_path / "a", first)) == pytest.approx(1.08 * 52, rel=0.01)
    assert frame_ms(drawn(tmp_path / "b", slow)) == pytest.approx(1.08 * 3 * 51, rel=0.01)


def test_every_tag_has_a_row_and_a_reason(tmp_path: Path) -> None:
    """And says whether such steps are steady."""
    steps = [make_step(index, tags=int(tag), forward=10) for index, tag in enumerate(Tag)]
    picture = drawn(tmp_path, steps)

    for place, tag in enumerate(Tag):
        assert (
            f"step {place}: {tag.label.replace('_', ' ').replace('warmup', 'warm-up')}" in picture
        )
    assert "excluded from the steady steps: validation ran just before it" in picture
    assert "1 such step here: the GradScaler skipped its update" in picture


def test_a_window_without_a_step_has_no_breakdown() -> None:
    """And nothing fails."""
    assert over_time(Groups()) == []


def test_a_chart_of_all_steady_steps_in_one_group_shows_the_reading(tmp_path: Path) -> None:
    """Charts and report combine steps and ranks in the same way: shown on four unequal ranks."""
    specs = [
        RankSpec(
            steps=[
                make_step(
                    index,
                    data_wait=1 + rank + index % 5,
                    forward=20 + 3 * rank,
                    backward=30,
                    facts={
                        "tokens_effective": 100 + 7 * rank + index,
                        "tokens_padded": 400,
                        "samples": 4 + rank,
                        "attempts": 1,
                        "overflows": int(index % 7 == rank),
                        "loss": 2.0 + rank,
                        "tail_ns": (5 - rank) * MS,
                    },
                )
                for index in range(64)
            ],
            info=make_info(rank=rank, world_size=4),
        )
        for rank in range(4)
    ]
    run = make_run_dir(tmp_path / "first" / "trainperf", specs)
    readings, groups = summarize(Run.open(run)).readings, groups_of(run, most=1)
    by_column = {
        "data_wait": "data_wait_fraction",
        "tokens_effective": "effective_tokens_per_s",
        "samples": "samples_per_s",
        "overflows": "overflow_rate",
        "loss": "loss",
        **{f"phase:{phase.label}": f"phase_{phase.label}_s" for phase in PHASES},
    }

    for column, reading in by_column.items():
        # The loss of a run is its last steps'.
        assert groups.span(column).mean()[0] == pytest.approx(readings[reading].value), column


def test_the_phases_of_one_rank_can_be_asked_for(tmp_path: Path) -> None:
    """Rank 2 of this run has a slow loader, and rank 0 has not."""
    run = make_run_dir(tmp_path / "first" / "trainperf", CASES["straggler"]().ranks)
    waits = [groups_of(run, lead=rank).span("phase:data_wait") for rank in (2, 0)]

    assert [span.mean()[20] for span in waits if span is not None] == [0.026, 0.001]


def test_the_rank_that_comes_last_waits_least(tmp_path: Path) -> None:
    """Rank 2 comes last at the all-reduce, and the others wait 25 ms for it."""
    tail = charts(make_run_dir(tmp_path / "run", CASES["straggler"]().ranks))["All-reduce tail"]

    assert [line.label for line in tail.lines] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    waits = [line.y[100] for line in tail.lines]
    assert [wait - min(waits) for wait in waits] == pytest.approx([0.025, 0.025, 0.0, 0.025])


def test_single_steps_of_several_ranks_are_timed_by_the_slowest(tmp_path: Path) -> None:
    """Tokens of both over 40 ms."""
    specs = [
        RankSpec(
            steps=[
                make_step(n, forward=20 * (1 + rank), facts={"tokens_effective": 100})
                for n in range(20)
            ],
            info=make_info(rank=rank, world_size=2),
        )
        for rank in range(2)
    ]
    tokens = groups_of(make_run_dir(tmp_path / "run", specs)).span("tokens_effective")

    assert (tokens.low[7], tokens.high[7], tokens.mean()[7]) == (5000, 5000, 5000)


def test_what_does_not_apply_has_no_line(tmp_path: Path) -> None:
    """Never one of zeros; data wait is drawn as the host saw it, and as the device did."""
    every = charts(make_run_dir(tmp_path / "run", CASES["hidden_wait"]().ranks))

    waits = [line.y[50] for line in every["Data wait"].lines]
    assert waits == pytest.approx([60 / 99, 0.06 / 99], rel=1e-6)
    assert [every[title].lines for title in ("All-reduce tail", "GPU clock")] == [[], []]


def test_a_missing_value_is_no_zero(tmp_path: Path) -> None:
    """A step without a loss leaves a gap."""
    steps = steps_of(30)
    facts = {name: value for name, value in steps[7].facts.items() if name != "loss"}
    steps[7] = make_step(7, forward=10, facts=facts)
    (loss,) = charts(a_run(tmp_path, steps=steps))["Loss"].lines

    assert np.flatnonzero(np.isnan(loss.y)).tolist() == [7]
