"""`trainperf report` as a user runs it: a process of its own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.commands import main
from trainperf.core.formatting.wrap import WIDTH


ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the command said, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Said]


@pytest.fixture
def trainperf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: starting Python for each case takes half a second."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run_command(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["trainperf", *map(str, arguments)])
        code = main()
        said = capsys.readouterr()
        return Said(returncode=code, stdout=said.out, stderr=said.err)

    return run_command


def process(
    *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "trainperf", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**ENVIRONMENT, **(environment or {})},
        check=False,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a slow loader."""
    info = make_info(config={"num_workers": 0})
    steps = make_steps(200, data_wait=20, forward=30)
    return make_run_dir(tmp_path / "gpt2" / "trainperf", [RankSpec(steps=steps, info=info)])


def test_it_prints_the_answer(run: Path) -> None:
    """On stdout, with exit code 0 and nothing on stderr."""
    result = process("report", run)

    assert (result.returncode, result.stderr) == (0, "")
    assert "Step time 50.0 ms; 40 % of it is data wait and 60 % compute." in result.stdout


def test_through_a_pipe_it_is_plain_text(trainperf: Command, run: Path) -> None:
    """No escape sequence, and a fixed width."""
    out = trainperf("report", run).stdout

    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= WIDTH


def test_the_width_can_be_asked_for(run: Path) -> None:
    """`COLUMNS`, as everywhere."""
    out = process("report", run, environment={"COLUMNS": "70"}).stdout

    assert max(map(len, out.splitlines())) <= 70


def test_json_is_the_summary(trainperf: Command, run: Path) -> None:
    """For programs."""
    data = json.loads(trainperf("report", run, "--format", "json").stdout)

    assert data["readings"]["data_wait_fraction"]["value"] == 0.4
    assert data["run"]["name"] == "gpt2"


def test_markdown_is_for_issues(trainperf: Command, run: Path) -> None:
    """A heading and a table."""
    out = trainperf("report", run, "--format=markdown").stdout

    assert out.startswith("### trainperf · gpt2 · ")
    assert "| data wait | 20.0 ms | ██████▍" in out


def test_reading_changes_nothing(trainperf: Command, run: Path) -> None:
    """A report of somebody else's run, on a read-only disk."""
    before = sorted(run.iterdir())

    trainperf("report", run)

    assert sorted(run.iterdir()) == before


def test_a_run_that_is_still_being_written_is_reported(trainperf: Command, tmp_path: Path) -> None:
    """The last line is half there."""
    spec = RankSpec(steps=make_steps(100, forward=50), end=None)
    run = make_run_dir(tmp_path / "run", [spec])
    with (run / "steps-rank0.jsonl").open("ab") as file:
        file.write(b"[100,500")

    result = trainperf("report", run)

    assert result.returncode == 0
    assert "still running, 100 steps so far" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "{tmp}/nowhere"),
        ("report", "{tmp}"),
        ("report", "{tmp}/file"),
        ("report", "{tmp}/foreign"),
        ("report", "{tmp}/future"),
        ("report", "{tmp}/a\nb"),
        ("report",),
        ("report", "{tmp}", "--format", "yaml"),
        ("report", "{tmp}", "--fromat", "json"),
        ("reprot", "{tmp}"),
    ],
)
def test_unusable_input_is_said_in_one_line(
    trainperf: Command, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Exit code 2, nothing on stdout, never a traceback."""
    (tmp_path / "file").write_text("hello")
    for name, line in (("foreign", '{"a": 1}'), ("future", '{"kind": "run", "schema": 99}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps-rank0.jsonl").write_text(line + "\n")
    chosen = arguments[:1] + tuple(part.format(tmp=tmp_path) for part in arguments[1:])
    if chosen[-1] == str(tmp_path):
        for name in ("foreign", "future"):
            (tmp_path / name / "steps-rank0.jsonl").unlink()

    result = trainperf(*chosen)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("trainperf: ")
    assert result.stderr.count("\n") == 1


def test_the_other_version_is_named(trainperf: Command, tmp_path: Path) -> None:
    """So that the reader knows which release to install."""
    (tmp_path / "steps-rank0.jsonl").write_text('{"kind": "run", "schema": 99}\n')

    assert (
        "schema version 99: this trainperf reads version 1" in trainperf("report", tmp_path).stderr
    )


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
    result = process("report", run, environment={"PYTHONIOENCODING": "ascii"})

    assert result.returncode == 0
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


def test_the_version_is_printed(trainperf: Command) -> None:
    """For bug reports."""
    assert trainperf("--version").stdout.startswith("trainperf 0.")


def test_without_arguments_it_lists_the_commands(trainperf: Command) -> None:
    """Nobody should have to know that there is a `--help`."""
    result = trainperf()

    assert result.returncode == 0
    assert "report" in result.stdout
