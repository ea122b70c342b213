"""To add a subcommand takes one file and one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]

HELLO = '''
"""`trainperf hello NAME`: a greeting."""

import argparse

from trainperf.commands.cli import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="whom to greet")


def _run(given: argparse.Namespace) -> str:
    return f"hello {given.name}\\n"


COMMAND = Command(
    name="hello", about="Greet somebody.", add_arguments=_add_arguments, run=_run
)
'''


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the package in which the command was added."""
    package = tmp_path / "trainperf"
    shutil.copytree(ROOT / "trainperf", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "commands" / "hello.py").write_text(HELLO, encoding="utf-8")
    family = package / "commands" / "__init__.py"
    before = family.read_text(encoding="utf-8")
    after = before.replace('    "merge",\n', '    "merge",\n    "hello",\n')
    assert after.count("\n") == before.count("\n") + 1
    family.write_text(after, encoding="utf-8")
    return tmp_path


def trainperf(folder: Path, *arguments: str) -> str:
    """Standard output of the copied package's command line."""
    return subprocess.run(
        [sys.executable, "-m", "trainperf", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_command_is_one_file_and_one_line(copied: Path) -> None:
    """It is listed, has a help of its own, and runs."""
    assert "hello    Greet somebody." in trainperf(copied, "--help")
    assert "whom to greet" in trainperf(copied, "hello", "--help")
    assert trainperf(copied, "hello", "reader") == "hello reader\n"
