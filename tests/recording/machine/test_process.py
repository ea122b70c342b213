"""The sampling process, started as a fit starts it: what it writes, and when it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.waiting import PATIENCE_S, until

from trainperf.analysis.run.machine import _series
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.paths import listed
from trainperf.core.run_directory import machine_file
from trainperf.recording.machine.probe import MachineProbe
from trainperf.recording.recorder import Recorder


PARENT = """
import sys, threading, time
from pathlib import Path
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.machine.probe import MachineProbe
from trainperf.recording.recorder import Recorder

probe = MachineProbe(Path(sys.argv[1]), 0, every_s=0.1)
attach = lambda: probe.attach(Recorder(monotonic_ns))
if sys.argv[2:] == ["thread"]:
    thread = threading.Thread(target=attach)
    thread.start()
    thread.join()
else:
    attach()
print(probe.child.pid, flush=True)
time.sleep(600)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no kernel ends it")


def lines(path: Path) -> int:
    """Whole lines so far."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def gone(pid: int) -> bool:
    """Whether nothing of that process runs."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[MachineProbe]:
    """One that samples ten times a second; nothing of it is left behind."""
    probe = MachineProbe(tmp_path, 0, every_s=0.1)
    probe.attach(Recorder(monotonic_ns))
    yield probe
    probe.detach()


def test_it_samples_the_clock_of_the_fit_and_ends_with_it(
    probe: MachineProbe, tmp_path: Path
) -> None:
    """Times rise and are those since the start of the fit; every line is whole."""
    path = machine_file(tmp_path, 0)
    child = probe.child
    until(lambda: lines(path) >= 5, "no samples")
    probe.detach()
    elapsed_ns = monotonic_ns() - probe.recorder.zero_ns
    written = path.read_bytes().splitlines()
    (series_file,) = [each for each in listed(tmp_path) if each.path == path]
    series = _series([series_file], None, 0)

    assert gone(child.pid)
    assert path.read_bytes().endswith((b"]\n", b"}\n"))
    assert len(series) == len([line for line in written if line.startswith(b"[")]) >= 4
    assert (series.at_ns[1:] > series.at_ns[:-1]).all()
    assert 0 < series.at_ns[0] < series.at_ns[-1] < elapsed_ns
    assert (series.column("memory_free") > 0).all()


def test_it_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    """Its start would cost the fit's processor seconds."""
    code = (
        "import sys, trainperf.recording.machine.process; "
        "print(sorted({'torch', 'numpy', 'lightning', 'fsspec'} & sys.modules.keys()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "[]"


def test_one_that_is_stopped_blocks_nothing_and_ends_with_the_fit(
    probe: MachineProbe, tmp_path: Path
) -> None:
    """It is killed, and waited for."""
    child = probe.child
    until(lambda: lines(machine_file(tmp_path, 0)) >= 2, "no samples")
    os.kill(child.pid, signal.SIGSTOP)
    probe.detach()

    assert child.returncode == -signal.SIGKILL
    assert gone(child.pid)


@contextmanager
def training(run: Path, *thread: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A training in a process of its own, and the number of its sampler, which samples."""
    environment = {**os.environ, "TRAINPERF_MACHINE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(run), *thread], stdout=subprocess.PIPE, env=environment
    ) as parent:
        child = int(parent.stdout.readline())
        until(lambda: lines(machine_file(run, 0)) >= 2, "no samples")
        assert not gone(child)
        try:
            yield parent, child
        finally:
            parent.kill()
            if not gone(child):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("sent", "thread", "stopped"),
    [
        (signal.SIGTERM, (), False),
        (signal.SIGKILL, ("thread",), False),
        pytest.param(signal.SIGKILL, (), True, marks=linux),
    ],
    ids=["main", "thread", "stopped"],
)
def test_it_dies_with_a_training_that_is_killed(
    sent: signal.Signals, thread: tuple[str, ...], tmp_path: Path, *, stopped: bool
) -> None:
    """Nobody tells it, the thread that started it may be gone, and it may not be running itself."""
    with training(tmp_path, *thread) as (parent, child):
        if stopped:
            os.kill(child, signal.SIGSTOP)
            until(lambda: psutil.Process(child).status() == psutil.STATUS_STOPPED, "not stopped")
        parent.send_signal(sent)
        parent.wait(timeout=PATIENCE_S)
        until(lambda: gone(child), "the sampler has outlived its training")


def test_two_starts_of_one_rank_write_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An elastic restart continues the run directory."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")

    assert machine_file(tmp_path, 3, 2).name == "machine-rank3.attempt2.jsonl"
    assert MachineProbe(tmp_path, 3)._file == machine_file(tmp_path, 3, 2)
