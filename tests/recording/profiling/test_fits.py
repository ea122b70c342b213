"""Real fits under `ScheduledProfiler`."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import PyTorchProfiler
from support.fits import Loader, Model, Ran, assert_tiles, read, trainer
from support.profiler import traces_of
from torch_tb_profiler.consts import WORKER_PATTERN

from trainperf.core.errors import ConfigError
from trainperf.core.phases import Gap, Tag
from trainperf.lightning import ScheduledProfiler, TrainPerf


NEVER = 1_000_000


def fit(path: Path, loader: object, *callbacks: Callback, **options: Any) -> Ran:
    """Train under `TrainPerf`; the run, which must tile the fit, is in `path/trainperf`."""
    trainer(path, TrainPerf(report=False), *callbacks, **options).fit(Model(), loader)
    ran = read(path / "trainperf")
    assert_tiles(ran)
    return ran


def test_two_cycles_leave_two_traces_with_steps_and_phases_marked(tmp_path: Path) -> None:
    """Lightning's own profiler would keep one; the phases are those of the records."""
    ran = fit(tmp_path, Loader(26), ScheduledProfiler(analyse=False, repeat=2))

    traces = traces_of(tmp_path / "trainperf")
    assert {name: trace.steps() for name, trace in traces.items()} == {
        "rank0-step000007-3steps.trace.json.gz": [7, 8, 9],
        "rank0-step000017-3steps.trace.json.gz": [17, 18, 19],
    }
    for trace in traces.values():
        for step in trace.steps():
            phases = [name for name in trace.phases(step) if name != "callbacks"]
            # Lightning runs forward and backward inside the optimizer's step.
            assert phases == ["data_wait", "h2d", "optimizer", "forward", "backward", "loop"]
    assert ran.tagged(Tag.PROFILED) == [*range(5, 11), *range(15, 21)]
    assert ran.gap_places(Gap.PROFILER_DUMP) == [4, 6, 9, 14, 16, 19]
    assert not any(WORKER_PATTERN.match(name) for name in traces)


def test_steps_are_numbered_on_after_a_resume(tmp_path: Path) -> None:
    """Four steps before the checkpoint: the fifth step of this fit is number 8."""
    before = trainer(tmp_path)
    before.fit(Model(), Loader(4))
    before.save_checkpoint(tmp_path / "kept.ckpt")

    profiler = ScheduledProfiler(analyse=False, wait=2, warmup=2, active=2)
    resumed = trainer(tmp_path, profiler, max_epochs=2)
    resumed.fit(Model(), Loader(20), ckpt_path=tmp_path / "kept.ckpt")

    traces = traces_of(tmp_path / "trainperf")
    assert {name: trace.steps() for name, trace in traces.items()} == {
        "rank0-step000008-2steps.trace.json.gz": [8, 9]
    }


@pytest.mark.parametrize("ours", [[], [TrainPerf(report=False)]])
def test_the_trainers_own_torch_profiler_is_refused(tmp_path: Path, ours: list[Callback]) -> None:
    """Before anything runs, whoever of our callbacks leads."""
    theirs = PyTorchProfiler(dirpath=tmp_path)
    both = trainer(tmp_path, *ours, ScheduledProfiler(analyse=False), profiler=theirs)

    with pytest.raises(ConfigError, match="torch has room for one profiler; take out the trainer"):
        both.fit(Model(), Loader(2))

    assert both.profiler is theirs
    theirs.profiler = None  # it fails in its own `__del__` after a fit that never began


def test_two_of_them_on_one_trainer_are_refused(tmp_path: Path) -> None:
    """With what to do instead."""
    two = trainer(
        tmp_path, ScheduledProfiler(analyse=False), ScheduledProfiler(analyse=False, wait=9)
    )

    with pytest.raises(ConfigError, match="attach one, with repeat=2 for two cycles"):
        two.fit(Model(), Loader(2))


def test_ranks_that_the_fit_does_not_have_are_refused(tmp_path: Path) -> None:
    """Otherwise nothing would be captured, and nothing said."""
    with pytest.raises(ConfigError, match=r"ranks=\(1, 2\): the last rank of this fit is 0"):
        trainer(tmp_path, ScheduledProfiler(analyse=False, ranks=(1, 2))).fit(Model(), Loader(2))


class AskOnRankZero(Callback):
    """Asks for a capture before the second batch of rank 0, and spreads batches over seconds."""

    def __init__(self, asked: Path) -> None:
        self.asked = asked

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        """A real second must pass: the clock of a fit is the host's."""
        if batch_idx == 1 and trainer.global_rank == 0:
            self.asked.touch()
        time.sleep(0.25)


def fit_on_two_ranks(path: Path, profiler: ScheduledProfiler, *callbacks: Callback) -> Path:
    """A fit of two processes; returns its run directory."""
    two = trainer(path, profiler, *callbacks, strategy="ddp_spawn", devices=2)
    two.fit(Model(), torch.utils.data.DataLoader(torch.ones(96, 4), batch_size=2))
    return path / "trainperf"


@pytest.mark.slow
@pytest.mark.ddp
def test_only_the_chosen_rank_traces(tmp_path: Path) -> None:
    """The other one has no trace, and its steps count as profiled all the same."""
    profiler = ScheduledProfiler(analyse=False, wait=1, warmup=1, active=2, ranks=(1,))
    run = fit_on_two_ranks(tmp_path, profiler)

    assert {name: trace.steps() for name, trace in traces_of(run).items()} == {
        "rank1-step000002-2steps.trace.json.gz": [2, 3]
    }
    assert read(run, 0).tagged(Tag.PROFILED) == []
    assert read(run, 1).tagged(Tag.PROFILED) == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.ddp
def test_each_rank_that_is_asked_while_training_captures(tmp_path: Path) -> None:
    """When it sees the file by itself: no rank waits for another."""
    profiler = ScheduledProfiler(analyse=False, skip_first=NEVER, warmup=1, active=2, ranks=(0, 1))
    ask = AskOnRankZero(tmp_path / "trainperf" / "capture")
    run = fit_on_two_ranks(tmp_path, profiler, ask)

    assert [len(trace.steps()) for trace in traces_of(run).values()] == [2, 2]
