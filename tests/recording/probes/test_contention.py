"""How long a rank's threads and workers ran and lacked a CPU, as the kernel counts it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.live import HostFit

from trainperf.recording.probes import contention
from trainperf.recording.probes.contention import ContentionProbe, countable, named


def write(proc: Path, task: str, ran: int, waited: int) -> None:
    """What the kernel shows of a task."""
    (proc / task).mkdir(parents=True, exist_ok=True)
    (proc / task / "schedstat").write_text(f"{ran} {waited} 7\n")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading after every step."""
    monkeypatch.setattr(contention.ContentionProbe, "least_ns", 0)
    monkeypatch.setattr(contention.ContentionProbe, "share", 1.0)


def test_waits_are_summed_from_the_first_reading_on(tmp_path: Path) -> None:
    """What was counted before is not the fit's; a worker that began since has only that."""
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
    assert (sums["workers_ran_ns"], sums["workers_waited_ns"]) == (105, 305)
    assert sums["span_ns"] > 0


def test_a_worker_that_ended_keeps_what_it_had_and_its_number_begins_anew(tmp_path: Path) -> None:
    """The next epoch's worker may have its number, with smaller counts: both are counted."""
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
    fit.steps(1)
    assert probe.totals()["workers_waited_ns"] == 62
    write(tmp_path, "41", 0, 1)  # and once more, between two readings
    fit.steps(1).finish()

    assert probe.totals()["workers_waited_ns"] == 63


def test_without_the_kernel_s_files_only_the_process_is_counted(tmp_path: Path) -> None:
    """No error, and nothing of what nobody counts."""
    probe = ContentionProbe(tmp_path)
    HostFit(probe).steps(3).finish()

    assert "waited_ns" not in probe.totals()
    assert not countable(tmp_path)


class Writer(threading.Thread):
    """A thread of a class of its own."""


@contextmanager
def waiting(thread: threading.Thread, ended: threading.Event) -> Iterator[threading.Thread]:
    """A thread that is there until the block ends."""
    thread.start()
    try:
        yield thread
    finally:
        ended.set()
        thread.join()


def counted(proc: Path, thread: threading.Thread, ran: int) -> None:
    """What the kernel would say of it."""
    write(proc, f"self/task/{thread.native_id}", ran, 5)


def test_what_a_thread_computes_counts_from_the_start_of_the_fit(tmp_path: Path) -> None:
    """Not what it did before; neither this thread, nor ours, nor one that nobody counts."""
    ended = threading.Event()
    writer = threading.Thread(target=ended.wait, name="writer-3", daemon=True)
    with (
        waiting(writer, ended),
        waiting(
            threading.Thread(target=ended.wait, name="trainperf lines", daemon=True), ended
        ) as ours,
    ):
        for thread in (writer, ours, threading.current_thread()):
            counted(tmp_path, thread, 1_000)
        probe = ContentionProbe(tmp_path)
        fit = HostFit(probe).steps(2)
        for thread in (writer, ours, threading.current_thread()):
            counted(tmp_path, thread, 5_000)
        fit.steps(1)
        assert probe.threads_ns() == {"writer": 4_000}
    fit.finish()

    assert probe.threads_ns() == {"writer": 4_000}, "one that has ended keeps what was read last"


def test_a_thread_with_the_number_of_one_that_has_ended_is_another(tmp_path: Path) -> None:
    """The system gives numbers again; however many threads come and go, no more is kept of them."""
    probe = ContentionProbe(tmp_path)
    fit = HostFit(probe).steps(1)
    for spent_ns in (7_000, 500):
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait, name=f"saves-{spent_ns}")
        with waiting(thread, ended):
            thread._native_id = 1  # type: ignore[attr-defined]
            counted(tmp_path, thread, spent_ns)
            fit.steps(1)
    fit.finish()

    assert probe.threads_ns() == {"saves": 7_500}
    assert not any(name.endswith("saves") for _, name in probe._latest), "nothing is kept of it"


@pytest.mark.parametrize(
    ("thread", "name"),
    [
        (Writer(name="Thread-4"), Writer.__module__.partition(".")[0]),
        (threading.Thread(name="Thread-4 (_loop)"), "_loop"),
        (threading.Thread(name="Thread-4"), "a thread"),
        (threading.Thread(name="ThreadPoolExecutor-0_1"), "ThreadPoolExecutor"),
    ],
)
def test_a_thread_is_named_by_its_package_or_function(thread: threading.Thread, name: str) -> None:
    """Numbers say nothing."""
    assert named(thread) == name


@pytest.mark.skipif(not countable(), reason="not counted here")
def test_a_thread_that_computes_is_told_from_one_that_waits() -> None:
    """The first one sums until a million is reached."""
    ended = threading.Event()
    probe = ContentionProbe()
    fit = HostFit(probe).steps(1)
    sums = threading.Thread(target=lambda: (sum(range(10**6)), ended.wait()), name="sums")
    waits = threading.Thread(target=ended.wait, name="waits")
    with waiting(waits, ended), waiting(sums, ended):
        while probe.threads_ns().get("sums", 0) < 1_000_000:
            fit.steps(1)
    fit.finish()

    assert probe.threads_ns().get("waits", 0) < probe.threads_ns()["sums"]
    counted_ns = probe.totals()
    assert {"span_ns", "ran_ns", "waited_ns", "kernel_ns"} <= counted_ns.keys()
    assert min(counted_ns.values()) >= 0
