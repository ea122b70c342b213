"""A plain loop looks into its loader before the first batch, if it was asked to."""

from pathlib import Path

import pytest
from support.loaders import Naps, Rows
from support.loops import written
from torch.utils.data import DataLoader

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.loop import LoopMonitor


def run_through(monitor: LoopMonitor, loader: object) -> int:
    """Steps of one epoch."""
    steps = 0
    with monitor:
        for _ in monitor.batches(loader):  # type: ignore[arg-type] # any iterable will do
            monitor.end_step()
            steps += 1
    return steps


@pytest.mark.real_clock
def test_a_loop_writes_what_a_batch_costs(tmp_path: Path) -> None:
    """Four samples of 5 ms; every batch of the epoch is still there."""
    nap = Naps(0.005)
    monitor = LoopMonitor(tmp_path, report=False, loader_anatomy=True)

    steps = run_through(monitor, DataLoader(Rows(nap, number=40), batch_size=4))

    assert monitor.run is not None
    found = read_document(LoaderAnatomy, monitor.run)
    assert found is not None
    assert found.getitem.mean_s == pytest.approx(4 * nap.mean_s, rel=0.1)
    assert steps == len(written(monitor).steps) == 10
    assert sum(written(monitor).gap_s("startup")) > found.start_s


def test_a_loop_that_did_not_ask_is_not_looked_into(tmp_path: Path) -> None:
    """No file."""
    monitor = LoopMonitor(tmp_path, report=False)

    run_through(monitor, DataLoader(Rows(number=8), batch_size=4))

    assert monitor.run is not None
    assert read_document(LoaderAnatomy, monitor.run) is None
