"""Ranks that Lightning spawns by itself: the callback travels there and comes back empty."""

from pathlib import Path

import pytest
from support.fits import Loader, Model, read, trainer

from trainperf.lightning import TrainPerf


pytestmark = [pytest.mark.ddp, pytest.mark.slow]


def test_spawned_ranks_record_and_the_parent_knows_nothing(tmp_path: Path) -> None:
    """Files and summary come from the children; the parent's callback can be used again."""
    perf = TrainPerf(report=False)
    training = trainer(tmp_path, perf, strategy="ddp_spawn", devices=2)
    before = training.profiler
    training.fit(Model(), Loader(6))
    run = tmp_path / "trainperf"
    for rank in (0, 1):
        ran = read(run, rank)
        assert ran.micro_batches() == [1] * 6
        assert ran.info.world_size == 2
        assert ran.end.reason == "finished"
    assert (run / "summary.json").exists()
    assert perf.session is None
    assert perf.state_dict() == {}
    assert training.profiler is before
    trainer(tmp_path, perf).fit(Model(), Loader(3))
    assert read(tmp_path / "trainperf-1").micro_batches() == [1] * 3
