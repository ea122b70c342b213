"""Runs that end as processes do: not closed, killed, by an error, on two ranks."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.multiprocessing as mp
from support.loop_ranks import train_on_one_cpu
from support.loops import read

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.contention import countable
from trainperf.testing import FakeClock


Start = Callable[..., subprocess.Popen[str]]

SCRIPT = """
import sys
import torch
from trainperf.loop import LoopMonitor

monitor = LoopMonitor(sys.argv[1], log_every_n_steps=5)
for number, batch in enumerate(monitor.batches([torch.ones(2, 3)] * 2000)):
    monitor.end_step()
    if number == {steps} - 1:
        {then}
"""


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the script with what it does after so many steps, 127 unless told."""

    def run(then: str, steps: int = 127) -> subprocess.Popen[str]:
        script = tmp_path / "loop.py"
        script.write_text(SCRIPT.format(then=then, steps=steps))
        return subprocess.Popen(
            [sys.executable, script, tmp_path / "runs"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def records(tmp_path: Path) -> Path:
    """The only record file."""
    (path,) = (tmp_path / "runs").glob("*/steps-rank0.jsonl")
    return path


@pytest.mark.parametrize(
    ("then", "code", "reason"),
    [
        ("break", 0, "not closed"),
        ("raise ZeroDivisionError('theirs')", 1, "ZeroDivisionError"),
    ],
)
def test_a_monitor_that_was_not_closed_is_closed_at_exit(
    start: Start, tmp_path: Path, then: str, code: int, reason: str
) -> None:
    """With its report, as if it had been; the end mark says so, and a traceback is the user's."""
    process = start(then)
    out, err = process.communicate(timeout=60)
    found = read(records(tmp_path))

    assert process.returncode == code, err
    assert err.strip().endswith("ZeroDivisionError: theirs" if code else "")
    assert found.end.reason == reason
    assert len(found.steps) == 127
    assert "\ntrainperf ·" in f"\n{out}"
    assert str(records(tmp_path).parent) in out
    assert json.loads((records(tmp_path).parent / "summary.json").read_text())["readings"]


def test_a_killed_process_has_written_whole_lines(start: Start, tmp_path: Path) -> None:
    """Everything up to the last flush, and five hundred steps are the most that wait for one."""
    process = start("print('now', flush=True); import time; time.sleep(60)", steps=1000)
    said = iter(process.stdout)
    while next(said).strip() != "now":  # the first answer may come before it
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    lines = records(tmp_path).read_bytes()
    found = read(records(tmp_path))

    assert lines.endswith(b"\n")
    assert [step.index for step in found.steps] == list(range(len(found.steps)))
    assert 500 <= len(found.steps) <= 1000
    assert b'"kind":"end"' not in lines
    if sys.platform == "linux":  # where a process that is gone can be seen
        assert examine(Run.open(records(tmp_path).parent)).summary.run.state == "killed"


def test_a_first_answer_comes_when_the_warm_up_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits three days for it; then the report, once."""
    clock = FakeClock()
    monitor = LoopMonitor(tmp_path, clock=clock, log_every_n_steps=10)
    for number in monitor.batches(range(100)):
        with monitor.phase("forward"):
            clock.advance(ms=20)
        monitor.end_step()
        assert ("warm-up over, step time 20" in capsys.readouterr().out) == (number == 20), number
    monitor.close()

    report = capsys.readouterr().out
    assert report.strip().startswith("trainperf ·")
    assert "warm-up over" not in report


@pytest.mark.slow
@pytest.mark.ddp
@pytest.mark.skipif(not countable(), reason="this system does not count waiting for a CPU")
@pytest.mark.parametrize(("ranks", "fires"), [(4, True), (1, False)])
def test_spawned_ranks_on_one_cpu_are_told_that_they_are_too_many(
    tmp_path: Path, ranks: int, *, fires: bool
) -> None:
    """No launcher says how many there are on this host; one rank on it is healthy."""
    mp.spawn(train_on_one_cpu, args=(tmp_path, ranks), nprocs=ranks)

    (run,) = (tmp_path / "runs").iterdir()
    summary = examine(Run.open(run)).summary
    assert (summary.host.ranks, summary.host.cpus_per_rank) == (ranks, 1 / ranks)
    told = [finding for finding in summary.findings if finding.id == "oversubscription"]
    assert bool(told) is fires
    if fires:
        assert told[0].title.startswith("4 ranks with 1 thread each on 1 CPU: ")
        assert (summary.host.waited_fraction or 0) > 0.4
