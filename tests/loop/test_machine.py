"""The machine beside real fits: who else is on the host is named."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.machine import read_machines
from trainperf.analysis.summarize import summarize
from trainperf.core.run_directory import machine_file


PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
BUSY = PINNED + "while True: pass"
TRAIN = """
import os, sys
import torch
from trainperf.loop import LoopMonitor

torch.set_num_threads(1)
monitor = LoopMonitor(sys.argv[1], report=False, lines=False)
weight = torch.nn.Parameter(torch.ones(128, 128))

def batches():
    while not os.path.exists(sys.argv[2]):
        yield torch.ones(128, 128)

for batch in monitor.batches(batches()):
    with monitor.phase("forward"):
        for _ in range(20):
            loss = (batch @ weight).tanh().sum()
    with monitor.phase("backward"):
        loss.backward()
    monitor.end_step()
monitor.close()
print(monitor.run)
"""

needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPUs are chosen")


def start(directory: Path, until: Path) -> "subprocess.Popen[str]":
    """A small fit in a process of its own: what this test starts beside it is not the fit's.

    It goes on until that file is there.
    """
    environment = {**os.environ, "TRAINPERF_MACHINE": ""}
    return subprocess.Popen(
        [sys.executable, "-c", PINNED + TRAIN, str(directory), str(until)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


@contextmanager
def busy(number: int) -> Iterator[list[int]]:
    """So many processes that keep the fit's CPU busy; nothing of them is left."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield [other.pid for other in others]
    finally:
        for other in others:
            other.kill()
            other.wait()


def wait_for(samples: Path, number: int) -> None:
    """Until the machine was looked at so many times, however often it is on this one."""
    deadline = time.monotonic() + 120
    while not samples.exists() or samples.read_bytes().count(b"\n") < number:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@needs_linux
def test_a_busy_process_beside_a_fit_is_named(tmp_path: Path) -> None:
    """Two of them on its one CPU: the training thread is ready two thirds of the time, and waits.

    Whatever else runs on this machine is a neighbour too, so that steps without any may be lacking.
    """
    over = tmp_path / "over"
    samples = tmp_path / "trainperf" / machine_file(tmp_path, 0).name
    with start(tmp_path, over) as fit:
        wait_for(samples, 8)
        with busy(2) as pids:
            wait_for(samples, 24)
            over.touch()
            printed, _ = fit.communicate(timeout=120)
    run = Run.open(printed.strip())
    finding = next(each for each in summarize(run).findings if each.id == "host_shared")
    ((series,), _) = read_machines(run)

    begun = min((each.at_ns for each in series.neighbours if each.pid in pids), default=None)
    assert series.column("waited")[series.at_ns >= begun].mean() > 0.3
    assert " kept " in finding.title
    assert any("the training thread had no CPU" in line for line in finding.evidence)
