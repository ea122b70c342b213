"""Commands as a user types them, in this process: starting Python for each takes half a second."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from trainperf.commands import main


class Ended(NamedTuple):
    """Exit code of a command, and what it wrote, its children included."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def typed(
    place: Path, *arguments: object, code: int | None = 0, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`trainperf` with these arguments in a process of its own, as a user types it in a folder.

    It must end with that exit code, unless any will do.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "trainperf", *map(str, arguments)],
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert code in (None, ended.returncode), ended.stderr
    return ended


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs one with these arguments, on no terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run_command(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["trainperf", *map(str, arguments)])
        code = main()
        written = capfd.readouterr()
        return Ended(code, written.out, written.err)

    return run_command
