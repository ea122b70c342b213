"""What all subcommands share: how arguments are read, and that none pays for another."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command
from support.traces import MS, event, step_mark, write_trace

from trainperf.commands import COMMANDS
from trainperf.commands.cli import load


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
def test_every_command_has_a_help_that_any_terminal_can_show(name: str, command: Command) -> None:
    """Exit code 0, the name in the first line, plain letters only."""
    code, out, err = command(name, "--help")

    assert (code, err) == (0, "")
    assert out.startswith(f"usage: trainperf {name} [-h]")
    assert out.isascii()


def test_the_list_of_commands_says_what_each_does(command: Command) -> None:
    """The sentence of each command, as in its own help; also where nothing is asked for."""
    commands = load("trainperf.commands", COMMANDS)

    listed = command("--help").out.split("commands:\n")[1].splitlines()

    assert command() == command("--help")
    assert command("--version").out.startswith("trainperf 0.")

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


def test_options_may_stand_anywhere_and_paths_may_begin_with_a_dash(
    command: Command, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the paths, and before the first; behind two dashes everything is a path."""
    for name in ("b.json", "-b.json"):
        (tmp_path / name).write_bytes(trace.read_bytes())
    monkeypatch.chdir(tmp_path)

    between = json.loads(command("trace", trace, "--format", "json", "b.json").out)
    before = json.loads(command("trace", "--format=json", trace, "b.json").out)
    dashed = json.loads(command("trace", "--format", "json", "--", "-b.json").out)

    assert [rank["file"] for job in between for rank in job["ranks"]] == ["a.json", "b.json"]
    assert before == between
    assert dashed["ranks"][0]["file"] == "-b.json"
