"""`trainperf report` as a user runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command, typed
from support.runs import RankSpec, make_run, make_run_dir, make_steps

from trainperf.core.formatting.wrap import WIDTH


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a slow loader."""
    path = tmp_path / "gpt2" / "trainperf"
    return make_run(path, config={"num_workers": 0}, data_wait=20, forward=30)


def test_it_prints_the_answer_and_changes_nothing(command: Command, run: Path) -> None:
    """On stdout: through a pipe plain text of a fixed width, for programs the summary.

    The run may be somebody else's, on a read-only disk.
    """
    before = sorted(run.iterdir())
    code, out, err = command("report", run)
    data = json.loads(command("report", run, "--format", "json").out)

    assert (code, err) == (0, "")
    assert "Step time 50.0 ms; 40 % of it is data wait and 60 % compute." in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert data["readings"]["data_wait_fraction"]["value"] == 0.4
    assert data["run"]["name"] == "gpt2"
    assert sorted(run.iterdir()) == before


def test_a_run_that_is_still_being_written_is_reported(command: Command, tmp_path: Path) -> None:
    """The last line is half there."""
    spec = RankSpec(steps=make_steps(100, forward=50), end=None)
    run = make_run_dir(tmp_path / "run", [spec])
    with (run / "steps-rank0.jsonl").open("ab") as file:
        file.write(b"[100,500")

    result = command("report", run)

    assert result.code == 0
    assert "still running, 100 steps so far" in result.out


def test_a_reader_that_leaves_early_is_no_error(run: Path) -> None:
    """`trainperf report RUN | head -1`."""
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "trainperf", "report", str(run), "--format", "json"],
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)

    assert (result.returncode, result.stderr) == (0, b"")


def test_letters_that_the_output_cannot_take_are_replaced(run: Path) -> None:
    """A log file in ASCII gets plain bars and crosses, not a traceback."""
    result = typed(run, "report", run, PYTHONIOENCODING="ascii")

    assert re.search(r"about\s+1\.\d\dx,\s+at most\s+1\.\d\dx", result.stdout)
    assert "######" in result.stdout


def test_it_neither_imports_torch_nor_lightning(run: Path) -> None:
    """The offline tower works, and starts fast, where they are not installed."""
    program = (
        "import sys; sys.argv = ['trainperf', 'report', sys.argv[1]];"
        "from trainperf.commands import main; code = main();"
        "print(code, sorted({'torch', 'lightning', 'tensorboard'} & set(sys.modules)))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True
    )

    assert result.stdout.splitlines()[-1] == "0 []"
