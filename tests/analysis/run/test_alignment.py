"""Many ranks: the same summary however few of their steps are in memory at the same time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.late import named
from support.runs import MS, RankSpec, make_gap, make_info, make_run_dir, make_step, rounded

from trainperf.analysis.run import replay
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import Totals


MANY = FEW_RANKS + 4
STEPS = 60
LATE = 7


def rank_spec(
    rank: int, *, ranks: int = MANY, attempt: int = 0, without: Sequence[int] = ()
) -> RankSpec:
    """A rank of a job in which rank 7's forward is late, with noise, and a tag of its own."""
    rng = np.random.default_rng(rank)
    late_ms = 15.0 * (rank == LATE)
    steps = []
    for index in range(STEPS):
        tail_ms = 20.0 - late_ms + float(rng.uniform(0, 0.2))
        tags = int(Tag.WARMUP) * (index < 10) | int(Tag.GC) * (index == 20 + rank)
        facts = {"tail_ns": round(tail_ms * MS), "samples": 8, "loss": 1.0 / (1 + index)}
        if index == 50 and rank == 3:
            facts["tail_ns"] = None  # type: ignore[assignment]
        steps.append(
            make_step(
                index,
                tags=tags,
                facts=facts,
                forward=10.0 + late_ms,
                backward=30.0 + tail_ms,
                loop=2.0 + float(rng.uniform(0, 0.2)),
            )
        )
    return RankSpec(
        steps=[step for step in steps if step.index not in without],
        info=make_info(rank=rank, world_size=ranks),
        gaps=[make_gap(Gap.VALIDATION, 100, after_step=30)],
        totals=Totals(at_step=STEPS - 1, actions_ns={f"A.{rank % 3}": 1000 + rank}),
        attempt=attempt,
    )


JOBS = {
    "healthy files": [rank_spec(rank) for rank in range(MANY)],
    "steps missing": [rank_spec(rank, without=range(rank, rank + 2)) for rank in range(MANY)],
    "a rank missing": [rank_spec(rank) for rank in range(MANY) if rank != 5],
    "restarted with fewer": [
        *(rank_spec(rank) for rank in range(MANY)),
        *(rank_spec(rank, attempt=1) for rank in range(2, MANY - 1)),
    ],
    "a rank without steps": [
        RankSpec(steps=[], info=make_info(rank=0, world_size=MANY)),
        *(rank_spec(rank) for rank in range(1, MANY)),
    ],
}


@pytest.mark.parametrize("job", JOBS)
def test_how_many_steps_are_in_memory_does_not_show(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every figure of the summary, findings included."""
    run = Run.open(make_run_dir(tmp_path / "run", JOBS[job]))

    whole = summarize(run, now_s=0.0)
    monkeypatch.setattr(replay, "BLOCK_STEPS", 14)

    assert rounded(summarize(run, now_s=0.0), 7) == rounded(whole, 7)
    if job == "healthy files":
        assert named(whole.synchronisation[0]) == (LATE, "forward")
