"""Whose processes are whose, from planted processes; and real ones of this test."""

from pathlib import Path

import psutil
import pytest

from trainperf.recording.machine.neighbours import ProcessSource
from trainperf.testing import FakeClock


class Processes:
    """What the kernel shows of them."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        (proc / "stat").write_text("cpu  0 0 0 0\nbtime 1700000000\n")

    def put(self, pid: int, parent: int, name: str, ticks: int) -> None:
        """A process that has run for so many hundredths of a second."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "cmdline").write_text(f"{name}\0")
        fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", "900", "0", *["0"] * 40]
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """A training with a worker, started by a shell, beside an editor."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    made = Processes(tmp_path)
    for pid, parent, name in ((1, 0, "init"), (50, 1, "bash"), (100, 50, "python")):
        made.put(pid, parent, name, 0)
    made.put(101, 100, "pt_data_worker (0)", 0)
    made.put(60, 50, "vim", 0)
    return made


def test_what_the_training_and_its_children_take_is_its_own(processes: Processes) -> None:
    """In CPUs, over the time since the reading before."""
    clock = FakeClock()
    source = ProcessSource(clock, 100)
    processes.put(100, 50, "python", 150)
    processes.put(101, 100, "pt_data_worker (0)", 50)
    processes.put(60, 50, "vim", 400)
    clock.advance(ms=2000)

    assert source.read() == pytest.approx(1.0)


def test_others_that_are_busy_are_named_the_busiest_first(processes: Processes) -> None:
    """Those that take less than a tenth of a CPU are not worth a name."""
    clock = FakeClock()
    source = ProcessSource(clock, 100)
    processes.put(60, 50, "vim", 10)
    processes.put(70, 1, "stress (a) b", 180)
    processes.put(71, 1, "ffmpeg", 380)
    processes.put(101, 100, "pt_data_worker (0)", 390)
    clock.advance(ms=2000)
    busy = source.look(9)

    assert [(each.name, each.pid) for each in busy] == [("ffmpeg", 71), ("stress (a) b", 70)]
    assert [each.cpus for each in busy] == pytest.approx([1.9, 0.9])


def test_a_worker_that_was_started_since_is_the_trainings(processes: Processes) -> None:
    """As of the next look."""
    clock = FakeClock()
    source = ProcessSource(clock, 100)
    processes.put(102, 101, "pt_data_worker (1)", 100)
    clock.advance(ms=1000)

    assert source.look(9) == []
    assert 102 in source.own


def test_further_ranks_of_the_host_are_the_trainings(processes: Processes) -> None:
    """They have been started by what started this one, a launcher or a loop of a shell."""
    processes.put(200, 50, "torchrun", 0)
    for pid in (201, 202):
        processes.put(pid, 200, "python", 0)
    processes.put(300, 1, "python", 0)
    launched = ProcessSource(FakeClock(), 201, several=True)
    by_hand = ProcessSource(FakeClock(), 100, several=True)
    orphan = ProcessSource(FakeClock(), 300, several=True)

    assert {200, 201, 202} <= launched.own
    assert 100 not in launched.own
    assert {100, 101, 201, 202} <= by_hand.own
    assert orphan.own.isdisjoint({1, 50, 100})
