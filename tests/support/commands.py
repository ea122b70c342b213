"""Commands as a user types them, in this process: starting Python for each takes half a second."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from trainperf.commands import main


class Ended(NamedTuple):
    """Exit code of a command, and what it wrote, its children included."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


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
