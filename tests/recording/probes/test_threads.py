"""What other threads of Python do while a loop trains."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.live import HostFit

from trainperf.recording.probes.threads import TASKS, ThreadsProbe, named


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


def counted(tasks: Path, thread: threading.Thread, spent_ns: int) -> None:
    """What the kernel would say of it."""
    folder = tasks / str(thread.native_id)
    folder.mkdir(exist_ok=True)
    (folder / "schedstat").write_text(f"{spent_ns} 5 1\n")


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
        probe = ThreadsProbe(tmp_path)
        fit = HostFit(probe).steps(2)
        for thread in (writer, ours, threading.current_thread()):
            counted(tmp_path, thread, 5_000)
        assert probe.read() == {"writer": 4_000}
    fit.finish()

    assert probe.read() == {"writer": 4_000}, "one that has ended keeps what was read last"


def test_a_thread_with_the_number_of_one_that_has_ended_is_another(tmp_path: Path) -> None:
    """The system gives numbers again; however many threads come and go, no more is kept of them."""
    probe = ThreadsProbe(tmp_path)
    HostFit(probe).steps(1)
    for spent_ns in (7_000, 500):
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait, name=f"saves-{spent_ns}")
        with waiting(thread, ended):
            thread._native_id = 1  # type: ignore[attr-defined]
            counted(tmp_path, thread, spent_ns)
            read = probe.read()

    assert read["saves"] == 7_500
    assert probe.read()["saves"] == 7_500


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


@pytest.mark.skipif(not TASKS.exists(), reason="not counted here")
def test_a_thread_that_computes_is_told_from_one_that_waits() -> None:
    """The first one sums until a million is reached."""
    ended = threading.Event()
    probe = ThreadsProbe()
    fit = HostFit(probe).steps(1)
    sums = threading.Thread(target=lambda: (sum(range(10**6)), ended.wait()), name="sums")
    waits = threading.Thread(target=ended.wait, name="waits")
    with waiting(waits, ended), waiting(sums, ended):
        while probe.read().get("sums", 0) < 1_000_000:
            pass
        spent_ns = probe.read()
    fit.finish()

    assert spent_ns.get("waits", 0) < spent_ns["sums"]
