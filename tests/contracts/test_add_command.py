"""A subcommand is one file and one line: then it is listed, has a help of its own, and runs."""

from pathlib import Path

import pytest
from support.extended import ExtendedPackage


COMMAND = '''"""`trainperf hello NAME`: a greeting."""

import argparse

from trainperf.commands.cli import Command


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="whom to greet")


def _run(given: argparse.Namespace) -> str:
    return f"hello {given.name}\\n"


COMMAND = Command(name="hello", about="Greet somebody.", add_arguments=_add_arguments, run=_run)
'''

MAIN = "import sys; from trainperf.commands import main; sys.exit(main())"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ExtendedPackage:
    """A package with one command more."""
    copy = ExtendedPackage.copied_to(tmp_path_factory.mktemp("checkout"))
    copy.add_file("commands/hello.py", COMMAND)
    copy.add_line("commands/__init__.py", '"hello",', after='"merge",')
    return copy


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--help",), "  hello       Greet somebody.\n"),
        (("hello", "--help"), "  NAME        whom to greet\n"),
        (("hello", "reader"), "hello reader\n"),
    ],
    ids=["listed", "helps", "runs"],
)
def test_a_command_that_was_added(
    package: ExtendedPackage, arguments: tuple[str, ...], shown: str
) -> None:
    """As if it had always been there."""
    assert shown in package.run(MAIN, *arguments)


def test_only_the_command_that_runs_is_loaded(package: ExtendedPackage, tmp_path: Path) -> None:
    """Others may need what is slow to import."""
    program = f"{MAIN.removesuffix('sys.exit(main())')} main(); print(*sys.modules)"

    loaded = package.run(program, "hello", tmp_path).split()

    assert [name for name in loaded if name.startswith("trainperf.commands.")] == [
        "trainperf.commands.cli",
        "trainperf.commands.hello",
    ]
