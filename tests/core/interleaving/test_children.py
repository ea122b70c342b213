"""Children of a process stand still while it waits for its turn."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import until

from trainperf.core.interleaving.children import stopped


SPIN = "import time\nwhile True: print('x', flush=True); time.sleep(0.001)"
NESTED = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"


def test_a_child_and_its_child_do_nothing_while_stopped(tmp_path: Path) -> None:
    """Workers of a loader, or of a server that forks them."""
    with _writes(NESTED, tmp_path / "out") as written:
        with stopped():
            length = _stands_still(written)
        _until_longer(written, length)


def test_another_rank_that_this_one_launched_goes_on_with_its_workers(tmp_path: Path) -> None:
    """As Lightning's launcher does it: rank 1 ends its own turn, and stops its workers."""
    with _writes(NESTED, tmp_path / "out", LOCAL_RANK="1") as written, stopped():
        _until_longer(written, written.stat().st_size)


def test_a_worker_that_knows_the_rank_of_its_parent_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spawned one has its parent's environment."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    with _writes(SPIN, tmp_path / "out") as written, stopped():
        _stands_still(written)


def test_a_process_of_ours_beside_the_training_goes_on(tmp_path: Path) -> None:
    """Nobody would continue it if the training died meanwhile."""
    with _writes(SPIN, tmp_path / "out", TRAINPERF_PARENT="") as written, stopped():
        _until_longer(written, written.stat().st_size)


@contextmanager
def _writes(code: str, path: Path, **environment: str) -> Iterator[Path]:
    """A child that writes to the file all the time, and has begun to."""
    with (
        path.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=out,
            env={**os.environ, **environment},
            start_new_session=True,
        ) as child,
    ):
        try:
            _until_longer(path, 0)
            yield path
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def _stands_still(path: Path) -> int:
    """Length of the file, which does not grow."""
    time.sleep(0.05)  # what is on its way is written
    length = path.stat().st_size
    time.sleep(0.2)
    assert path.stat().st_size == length
    return length


def _until_longer(path: Path, length: int) -> None:
    until(lambda: path.stat().st_size > length, "nothing was written")
