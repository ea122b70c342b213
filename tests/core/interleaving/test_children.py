"""Children of a process stand still while it waits for its turn."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainperf.core.interleaving.children import can_be_stopped, stopped


SPIN = "import time\nwhile True: print('x', flush=True); time.sleep(0.001)"


@pytest.mark.skipif(not can_be_stopped(), reason="this system does not list children")
def test_a_child_and_its_child_do_nothing_while_stopped(tmp_path: Path) -> None:
    """Workers of a loader, or of a server that forks them."""
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    written = tmp_path / "out"
    with (
        written.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", nested], stdout=out, start_new_session=True
        ) as child,
    ):
        try:
            _until_longer(written, 0)
            with stopped():
                time.sleep(0.05)  # what is on its way is written
                length = written.stat().st_size
                time.sleep(0.2)
                assert written.stat().st_size == length
            _until_longer(written, length)
        finally:
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.skipif(not can_be_stopped(), reason="this system does not list children")
def test_another_rank_that_this_one_launched_goes_on_with_its_workers(tmp_path: Path) -> None:
    """As Lightning's launcher does it: rank 1 ends its own turn, and stops its workers."""
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    written = tmp_path / "out"
    with (
        written.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", nested],
            stdout=out,
            env={**os.environ, "LOCAL_RANK": "1"},
            start_new_session=True,
        ) as rank,
    ):
        try:
            _until_longer(written, 0)
            with stopped():
                _until_longer(written, written.stat().st_size)
        finally:
            os.killpg(rank.pid, signal.SIGKILL)


@pytest.mark.skipif(not can_be_stopped(), reason="this system does not list children")
def test_a_worker_that_knows_the_rank_of_its_parent_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spawned one has its parent's environment."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    written = tmp_path / "out"
    with (
        written.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", SPIN], stdout=out) as worker,
    ):
        try:
            _until_longer(written, 0)
            with stopped():
                time.sleep(0.05)  # what is on its way is written
                length = written.stat().st_size
                time.sleep(0.2)
                assert written.stat().st_size == length
        finally:
            worker.kill()


def _until_longer(path: Path, length: int) -> None:
    for _ in range(400):
        if path.stat().st_size > length:
            return
        time.sleep(0.05)
    raise AssertionError("nothing was written")
