"""How long a rank's thread and its workers lacked a CPU, as the kernel counts it."""

from pathlib import Path

import pytest
from support.live import HostFit

from trainperf.recording.probes import contention
from trainperf.recording.probes.contention import ContentionProbe, countable


def write(proc: Path, task: str, ran: int, waited: int) -> None:
    """What the kernel shows of a task."""
    (proc / task).mkdir(parents=True, exist_ok=True)
    (proc / task / "schedstat").write_text(f"{ran} {waited} 7\n")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading after every step."""
    monkeypatch.setattr(contention, "LEAST_NS", 0)
    monkeypatch.setattr(contention, "SHARE", 1.0)


def test_waits_are_summed_from_the_first_reading_on(tmp_path: Path) -> None:
    """What was counted before the fit is not its own, of the thread as of its workers."""
    write(tmp_path, "thread-self", 1000, 500)
    write(tmp_path, "41", 90, 10)
    (tmp_path / "thread-self" / "children").write_text("41 42 ")
    probe = ContentionProbe(tmp_path)
    fit = HostFit(probe).steps(1)
    write(tmp_path, "thread-self", 1600, 900)
    write(tmp_path, "41", 190, 310)
    write(tmp_path, "42", 5, 5)
    fit.steps(1).finish()

    sums = probe.totals()
    assert (sums["ran_ns"], sums["waited_ns"]) == (600, 400)
    assert (sums["workers_ran_ns"], sums["workers_waited_ns"]) == (100, 300)
    assert sums["span_ns"] > 0


def test_a_worker_that_ended_keeps_what_it_had_and_its_number_begins_anew(tmp_path: Path) -> None:
    """The next epoch's worker may have its number, with smaller counts."""
    write(tmp_path, "thread-self", 0, 0)
    (tmp_path / "thread-self" / "children").write_text("41")
    write(tmp_path, "41", 100, 100)
    probe = ContentionProbe(tmp_path)
    fit = HostFit(probe).steps(1)
    write(tmp_path, "41", 150, 160)
    fit.steps(1)
    (tmp_path / "thread-self" / "children").write_text("")
    fit.steps(1)
    assert probe.totals()["workers_waited_ns"] == 60
    (tmp_path / "thread-self" / "children").write_text("41")
    write(tmp_path, "41", 1, 2)
    fit.steps(1).finish()

    assert probe.totals()["workers_waited_ns"] == 0


@pytest.mark.skipif(not countable(), reason="not counted here")
def test_this_process_s_own_counts_can_be_read() -> None:
    """The kernel's files have what the probe reads."""
    probe = ContentionProbe()
    HostFit(probe).steps(3).finish()

    sums = probe.totals()
    assert {"span_ns", "ran_ns", "waited_ns", "preemptions", "kernel_ns"} <= sums.keys()
    assert min(sums.values()) >= 0


def test_without_the_kernel_s_files_only_the_process_is_counted(tmp_path: Path) -> None:
    """No error, and nothing of what nobody counts."""
    probe = ContentionProbe(tmp_path)
    HostFit(probe).steps(3).finish()

    assert "waited_ns" not in probe.totals()
    assert not countable(tmp_path)
