"""`trainperf view RUN`: TensorBoard at this machine's own address, until Ctrl-C."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tab import a_run

from trainperf.commands._tab import log_directory


COMMAND = (sys.executable, "-m", "trainperf", "view")


def started(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """The command, and the address it printed."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return process, process.stdout.readline()


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A run in `version_0`, shown by its own directory."""
    process, said = started(str(a_run(tmp_path, "version_0")), "--port", "0")
    with process:
        yield process, said
        process.kill()


def test_it_prints_where_to_look_answers_there_and_ends_on_ctrl_c(
    shown: tuple["subprocess.Popen[str]", str],
) -> None:
    """One process, nothing left behind."""
    process, said = shown
    assert said.startswith("trainperf: http://127.0.0.1:")
    assert said.endswith("/#trainperf\n")
    address = said.removeprefix("trainperf: ").removesuffix("#trainperf\n")

    with urllib.request.urlopen(f"{address}data/plugin/trainperf/runs") as response:  # noqa: S310
        runs = response.read()
    process.send_signal(signal.SIGINT)

    assert b'{"id":"trainperf","name":"version_0"}' in runs
    assert process.wait(timeout=30) == 0


def test_the_log_directory_is_what_holds_the_run(tmp_path: Path) -> None:
    """A run is seen beside its neighbours; one above runs is taken as it is."""
    run = a_run(tmp_path / "a" / "b" / "c", "version_0")

    assert log_directory(run) == run.parent
    assert log_directory(run / "steps-rank0.jsonl") == run.parent
    assert log_directory(run.parent) == run.parent
    assert log_directory(tmp_path) == tmp_path
