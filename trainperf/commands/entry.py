"""What do all subcommands have in common?  Parsing, exit codes, and one line for every error."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, cast

import typer
from typer.main import get_command

from trainperf import __version__
from trainperf.errors import TrainPerfError
from trainperf.reports.safe import plain
from trainperf.reports.stream import encodable


UNUSABLE = 2
INTERRUPTED = 130

# Typer uses the installed Click or brings its own, depending on the version; this leaf of its
# errors is the only one it exports in both, and the third in line is the base of all of them.
_Refused = cast("type[Exception]", typer.BadParameter.__mro__[2])


Command = Callable[..., str | None]
"""A subcommand: its arguments are Typer's, its docstring the help, its result what it says."""


def run(commands: Iterable[Command]) -> int:
    """Parse the process's arguments, run the subcommand, and return the exit code."""
    app = get_command(_app(commands))
    try:
        said = app.main(
            args=sys.argv[1:] or ["--help"], prog_name="trainperf", standalone_mode=False
        )
        # Outside Typer, which would take a broken pipe for a failure.
        if isinstance(said, str):
            sys.stdout.write(encodable(said, sys.stdout))
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
    except TrainPerfError as error:
        return _refuse(str(error))
    except OSError as error:
        said = error.strerror or str(error)
        return _refuse(f"{error.filename}: {said}" if error.filename else said)
    except _Refused as error:
        return _refuse(error.format_message() if hasattr(error, "format_message") else str(error))
    return 0


def _app(commands: Iterable[Command]) -> typer.Typer:
    app = typer.Typer(
        name="trainperf",
        help="Where every millisecond of a PyTorch training step goes, and what to change first.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for command in commands:
        app.command()(command)
    return app


def _print_version(value: bool) -> None:  # noqa: FBT001 Typer calls it
    if value:
        sys.stdout.write(f"trainperf {__version__}\n")
        raise typer.Exit


def _options(
    version: Annotated[  # noqa: FBT002 a flag of the command line
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    del version


def _refuse(message: str) -> int:
    sys.stderr.write(encodable(f"trainperf: {plain(message)}\n", sys.stderr))
    return UNUSABLE


def _close_stdout() -> None:
    """The reader has gone: what is still buffered must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
