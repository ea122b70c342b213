"""Traces recorded here, from real loops on the CPU."""

from pathlib import Path
from typing import Any

import torch
from support.fits import Loader, Model, Sleeper, trainer
from torch.profiler import ProfilerActivity, profile, schedule

from trainperf.lightning import ScheduledProfiler
from trainperf.traces.job_report import report
from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read
from trainperf.traces.results import RankTrace


class Slow(torch.utils.data.Dataset[Any]):
    """Rows that take a while, by a clock of their own."""

    def __init__(self, sleep: Sleeper) -> None:
        self.sleep = sleep

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        self.sleep()
        return torch.ones(16)


def plain(path: Path) -> tuple[RankTrace, list[float]]:
    """Four traced steps of a plain loop, and how long its loader slept for each batch."""
    sleep = Sleeper(0.02)
    loader = torch.utils.data.DataLoader(Slow(sleep), batch_size=1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=4),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for batch in loader:
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return analyse(read(path), path.name), [slept / 1e9 for slept in sleep.slept_ns]


def test_the_steps_and_parts_of_a_plain_loop_are_told(tmp_path: Path) -> None:
    """By the profiler's marks, what backward refers to, the engine and the optimizer's mark.

    The loader's time is what it slept: that of the third to the sixth batch, and little more.
    """
    trace, slept_s = plain(tmp_path / "plain.json")

    assert trace.step_source == "ProfilerStep"
    assert [step.step for step in trace.steps] == [2, 3, 4, 5]
    assert trace.device is None
    assert trace.totals.gpu_busy_fraction is None
    assert trace.reasons["gpu_busy_s"] == "no device in this trace"
    # A step's mark begins after `profiler.step()`, and so holds the next batch's loading.
    for step, own_s in zip(trace.steps, slept_s[2:], strict=True):
        parts = (step.forward_s, step.backward_s, step.optimizer_s)
        assert own_s <= step.data_wait_s <= step.step_s
        assert step.data_wait_exposed_s is None
        assert all(part is not None and part > 0 for part in parts)
        assert sum(part or 0.0 for part in parts) < step.step_s - step.data_wait_s
        assert step.item_calls == 1
        assert 0 < (step.cpu_op_s or 0.0) < step.step_s


def test_a_fit_under_the_scheduled_profiler_is_read_back(tmp_path: Path) -> None:
    """Lightning's step runs forward and backward inside the optimizer's mark."""
    trainer(tmp_path, ScheduledProfiler(wait=2, warmup=1, active=3)).fit(Model(), Loader(10))

    found = report([tmp_path / "trainperf"])

    (trace,) = found.ranks
    assert trace.rank == 0
    assert [step.step for step in trace.steps] == [3, 4, 5]
    for step in trace.steps:
        parts = (step.data_wait_s, step.forward_s, step.backward_s, step.optimizer_s)
        assert all(part is not None and part > 0 for part in parts)
        assert sum(part or 0.0 for part in parts) <= step.step_s
    assert found.answer.startswith("No device in this trace: a step of ")
