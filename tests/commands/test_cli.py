"""What all subcommands share: how arguments are read, and that none pays for another."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.traces import MS, event, step_mark, write_trace

from trainperf.commands import COMMANDS
from trainperf.commands.cli import load


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    command = [sys.executable, "-m", "trainperf", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


def loaded_by(*arguments: object) -> set[str]:
    """Modules in a fresh interpreter after the command with these arguments."""
    program = (
        "import json, sys; from trainperf.commands import main; main();"
        "print(json.dumps(sorted(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file that can be read."""
    return write_trace(tmp_path / "a.json", [step_mark(1, 0, 20 * MS), event("op", MS, 5 * MS)])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_that_any_terminal_can_show(name: str) -> None:
    """Exit code 0, the name in the first line, plain letters only."""
    result = run(name, "--help")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: trainperf {name} [-h]")
    assert result.stdout.isascii()


def test_the_list_of_commands_says_what_each_does() -> None:
    """The sentence of each command, as in its own help."""
    commands = load("trainperf.commands", COMMANDS)

    listed = run("--help").stdout.split("commands:\n")[1].splitlines()

    assert [line.split(maxsplit=1) for line in listed] == [
        [command.name, command.about] for command in commands
    ]
    assert tuple(command.name for command in commands) == COMMANDS


def test_asking_for_help_loads_nothing_that_takes_time() -> None:
    """The files of all commands are loaded, and what they need to run is not."""
    assert not loaded_by("--help") & {"numpy", "msgspec", "rich", "tensorboard"}


def test_a_trace_is_not_kept_waiting_by_what_other_commands_need(trace: Path) -> None:
    """The start is most of the time of a small trace."""
    loaded = loaded_by("trace", trace)

    assert "numpy" in loaded
    assert not loaded & {
        "tensorboard",
        "trainperf.analysis.run.directory",
        "trainperf.analysis.summarize",
        "numpy.ma",
    }
    assert not loaded & {"multiprocessing", "email", "importlib.metadata"}


def test_options_may_stand_anywhere(trace: Path, tmp_path: Path) -> None:
    """Between the paths, and before the first."""
    other = write_trace(tmp_path / "b.json", [step_mark(1, 0, 20 * MS), event("op", MS, 5 * MS)])

    between = json.loads(run("trace", trace, "--format", "json", other).stdout)
    before = json.loads(run("trace", "--format=json", trace, other).stdout)

    assert [rank["file"] for job in between for rank in job["ranks"]] == ["a.json", "b.json"]
    assert before == between


def test_a_path_may_begin_with_a_dash(tmp_path: Path) -> None:
    """Behind two dashes everything is a path."""
    path = write_trace(tmp_path / "-a.json", [step_mark(1, 0, 20 * MS), event("op", MS, 5 * MS)])

    result = subprocess.run(
        [sys.executable, "-m", "trainperf", "trace", "--format", "json", "--", path.name],
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )

    assert json.loads(result.stdout)["ranks"][0]["file"] == "-a.json"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reprot", "run"], "trainperf: argument COMMAND: invalid choice: 'reprot'"),
        (["trace"], "trainperf: the following arguments are required: PATH; see trainperf trace"),
        (["run"], "trainperf: the following arguments are required: SCRIPT; see trainperf run"),
        (["trace", "a", "--form", "json"], "trainperf: unrecognized arguments: --form"),
        (["trace", "a", "--format", "pdf"], "trainperf: argument --format: invalid choice: 'pdf'"),
        (["view", "a", "--port", "65536"], "trainperf: argument --port: 65536: must be a number"),
        (["view", "a", "--port", "-1"], "trainperf: argument --port: -1: must be a number from 0"),
    ],
)
def test_a_wrong_argument_is_named_with_where_to_find_the_right_ones(
    arguments: list[str], said: str
) -> None:
    """One line, exit code 2; a part of an option's name is none, lest a new option break it."""
    result = run(*arguments)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert result.stderr.endswith("--help\n")
    assert result.stderr.count("\n") == 1
