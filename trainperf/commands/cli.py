"""What do all subcommands have in common?  Parsing, exit codes, and one line for every error."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainperf import __version__
from trainperf.core.errors import ConfigError, TrainPerfError
from trainperf.core.formatting.escape import encodable, plain


UNUSABLE = 2
INTERRUPTED = 130

ABOUT = "Where every millisecond of a PyTorch training step goes, and what to change first."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command that is a gate has to say, and whether the gate failed."""

    text: str
    code: int
    """Exit code: 0, or 1 for a gate that was asked for and failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand.

    The files of all are loaded for any of them, so what it needs to run it imports when it runs.
    """

    name: str
    about: str
    """What it does, in a sentence; in ASCII, like all help texts."""
    declare: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments."""
    run: Callable[[argparse.Namespace], str | CommandResult]
    """Does it; what is returned goes to stdout."""
    passes_on: bool = False
    """Whether everything behind its first argument belongs to another program."""


def dispatch(commands: Sequence[Command]) -> int:
    """Parse the process's arguments, run the subcommand, and return the exit code."""
    code = 0
    try:
        said = _said(commands, sys.argv[1:] or ["--help"])
        code = said.code
        sys.stdout.write(encodable(said.text, sys.stdout))
        sys.stdout.flush()
    except SystemExit:
        # Help and version were asked for; errors of arguments are no exits, see `_Parser`.
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader left: what a gate decided holds all the same.
        _close_stdout()
    except TrainPerfError as error:
        return _refuse(str(error))
    except OSError as error:
        why = error.strerror or str(error)
        return _refuse(f"{error.filename}: {why}" if error.filename else why)
    return code


def _said(commands: Sequence[Command], arguments: Sequence[str]) -> CommandResult:
    named = {command.name: command for command in commands}
    # By itself, so that the rest is parsed by the one command that is asked for.
    first = _top(commands).parse_args(arguments[:1])
    command = named[first.command]
    parser = _Parser(prog=f"trainperf {command.name}", description=command.about)
    command.declare(parser)
    # Options may stand between paths; the parser that allows it takes no `--`.
    in_order = "--" in arguments or command.passes_on
    parse = parser.parse_args if in_order else parser.parse_intermixed_args
    said = command.run(parse(arguments[1:]))
    return CommandResult(text=said, code=0) if isinstance(said, str) else said


class _Parser(argparse.ArgumentParser):
    """Refuses with an exception instead of an exit, and takes only whole names of options."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def _top(commands: Sequence[Command]) -> argparse.ArgumentParser:
    wide = max(len(command.name) for command in commands)
    listed = [f"  {command.name:<{wide}}  {command.about}" for command in commands]
    parser = _Parser(prog="trainperf", description=ABOUT, epilog="\n".join(["commands:", *listed]))
    parser.add_argument("--version", action="version", version=f"trainperf {__version__}")
    parser.add_argument(
        "command",
        metavar="COMMAND",
        choices=[command.name for command in commands],
        help="one of those below; each has a --help of its own",
    )
    return parser


def _refuse(message: str) -> int:
    sys.stderr.write(encodable(f"trainperf: {plain(message)}\n", sys.stderr))
    return UNUSABLE


def _close_stdout() -> None:
    """The reader has gone: what is still buffered must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
