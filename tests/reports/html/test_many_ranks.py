"""Pages and comparisons of many ranks, file by file: what all ranks together give, in any order."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.engines import Shuffled
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_step

from trainperf.analysis import summarize as module
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import FEW_RANKS
from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun
from trainperf.comparison.fit_clock import FIT_STEP_S
from trainperf.core.engines.base import Engine
from trainperf.core.phases import Gap, Tag
from trainperf.reports.html.compare import read
from trainperf.reports.html.run import PageData, load_page_data, render


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


JOBS = {
    "healthy files": [rank_spec(rank) for rank in range(MANY)],
    "restarted with fewer": [
        *(rank_spec(rank) for rank in range(MANY)),
        *(rank_spec(rank, attempt=1) for rank in range(2, MANY - 1)),
    ],
}


@pytest.fixture(params=JOBS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """One of the jobs."""
    return Run.open(make_run_dir(tmp_path / "run", JOBS[request.param]))


def drawn(data: PageData) -> dict[str, Any]:
    """What the page draws over steps, to six digits."""
    plain = json.loads(
        msgspec.json.encode(data.series), parse_float=lambda text: f"{float(text):.5e}"
    )
    return {"steps": plain["steps"], **{chart["key"]: chart for chart in plain["charts"]}}


def test_the_page_draws_what_all_ranks_together_give(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases, shares, memory, losses and step times; of tails those that differ most."""
    apart = load_page_data(run, now_s=0.0)
    monkeypatch.setattr(module, "FEW_RANKS", MANY)
    together = load_page_data(run, now_s=0.0)

    ours, theirs = drawn(apart), drawn(together)
    tails = ours.pop("tail"), theirs.pop("tail")
    skews = ours.pop("skew"), theirs.pop("skew")
    rates = [(ours.pop(name), theirs.pop(name)) for name in ("tokens", "samples")]
    assert ours == theirs
    for mine, other in rates:
        lines = zip(mine["lines"], other["lines"], strict=True)
        for line, other_line in lines:
            # The time is that of the slowest rank of those whose steps are looked at one by one.
            assert [value is None for value in line["values"]] == [
                value is None for value in other_line["values"]
            ]
            values = zip(line["values"], other_line["values"], strict=True)
            assert all(
                a is None or float(a) == pytest.approx(float(b), rel=0.01) for a, b in values
            )
    for mine, other in (tails, skews):
        assert mine["note"] == other["note"]
        lines = {line["key"]: line for line in mine["lines"]}
        assert len(lines) == len(other["lines"]) == 8
        assert f"rank {LATE}" in lines
        assert all(lines.get(line["key"], line) == line for line in other["lines"])
    for mine_of, other_of in zip(apart.walls.every(), together.walls.every(), strict=True):
        assert mine_of.counts.tolist() == other_of.counts.tolist()


def compared(run: Run, engine: Engine | None = None) -> ComparedRun:
    """The run as a comparison reads it."""
    (side,) = read([[run]], engine)
    return side.runs[0]


def test_a_comparison_reads_what_all_ranks_together_give(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit clock with the longest gap of any rank, the losses, and an error of every reading."""
    apart = compared(run)
    monkeypatch.setattr(module, "FEW_RANKS", MANY)
    together = compared(run)

    fits = [each.summary.readings[FIT_STEP_S].value for each in (apart, together)]
    assert fits[0] == pytest.approx(fits[1], rel=1e-9)
    np.testing.assert_allclose(apart.losses.loss, together.losses.loss)
    assert apart.losses.work.keys() == together.losses.work.keys()
    assert apart.ordinary_s == pytest.approx(together.ordinary_s, rel=1e-9)
    assert apart.estimates.keys() == together.estimates.keys()


def test_the_slowest_rank_is_that_of_the_cycle(tmp_path: Path) -> None:
    """Rank 11 validates 50 ms longer than the others: that is what the fit waits for."""
    run = Run.open(make_run_dir(tmp_path / "run", JOBS["healthy files"]))
    seconds = compared(run).summary.readings[FIT_STEP_S]

    # Forward 10, backward 50, loop 2, of rank 7 forward 25 and backward 35: 62 ms and some noise.
    assert seconds.n == STEPS - 10
    assert seconds.value == pytest.approx(0.0623 + 0.150 / (STEPS - 10), rel=0.002)


@pytest.mark.parametrize("seed", [1, 2])
def test_neither_engine_nor_order_show(run: Run, seed: int, tmp_path: Path) -> None:
    """The same bytes of a page, and the same comparison, whoever reads the files."""
    other = Run.open(
        make_run_dir(tmp_path / "other", [rank_spec(r, forward_ms=8.0) for r in range(MANY)])
    )
    shuffled = Engine(executor=Shuffled(seed), workers=2)

    assert render(load_page_data(run, now_s=0.0, engine=shuffled)) == render(
        load_page_data(run, now_s=0.0)
    )
    verdicts = [
        msgspec.json.encode(compare([compared(run, engine)], [compared(other, engine)]))
        for engine in (None, shuffled)
    ]
    assert verdicts[0] == verdicts[1]
