"""Argument parsing, exit codes and one-line errors, shared by all subcommands."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from keyword import iskeyword
from operator import methodcaller
from typing import NamedTuple, NoReturn

from trainperf import __version__
from trainperf.core.errors import ConfigError, TrainPerfError
from trainperf.core.families import load_members
from trainperf.core.formatting.escape import encodable, plain


UNUSABLE = 2
SIGNALLED = 128
"""Added by a shell to the number of the signal that ended a process."""
INTERRUPTED = SIGNALLED + signal.SIGINT

ABOUT = """\
Where every millisecond of a PyTorch training step goes, and what to change first.

to begin: trainperf run train.py"""


class CommandResult(NamedTuple):
    """Output of a command that can be a gate."""

    text: str
    code: int
    """Exit code: 0, or that of a gate that was asked for: 1 failed, 3 undecided."""


Argument = Callable[[argparse.ArgumentParser], object]
"""Adds itself to a parser."""


def argument(*names: str, **options: object) -> Argument:
    """An argument of a command, as `add_argument` of `argparse` takes it."""
    return methodcaller("add_argument", *names, **options)


class Command(NamedTuple):
    """A subcommand; its file is loaded for every `--help`, so all imports belong into `run`."""

    name: str
    """That of its file, which ends in `_` where it would be a keyword of Python: `try_.py`."""
    about: str
    """What the user gets, in a sentence; in ASCII, like all help texts."""
    arguments: Sequence[Argument]
    run: Callable[[argparse.Namespace], str | CommandResult]
    """What it returns goes to stdout."""
    examples: tuple[str, ...] = ()
    """Command lines as they are typed, without `trainperf` and the command's name."""
    forwards_arguments: bool = False
    """Whether everything after its first positional argument belongs to another program."""
    takes_command: bool = False
    """Whether what follows `--` is another program's command line: its argument `command`."""


def load(package: str, names: Sequence[str]) -> tuple[Command, ...]:
    """The subcommands *names*, each from its file in *package*."""
    files = [f"{name}_" if iskeyword(name) else name for name in names]
    return tuple(load_members(package, files, "COMMAND"))


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of a subcommand's own arguments."""
    program = f"trainperf {command.name}"
    typed = [f"  {program} {example}" for example in command.examples]
    epilog = "\n".join(["examples:", *typed]) if typed else None
    parser = _Parser(prog=program, description=command.about, epilog=epilog)
    for add in command.arguments:
        add(parser)
    return parser


def dispatch(package: str, names: Sequence[str]) -> int:
    """Parse the process's arguments, run the subcommand, and return the exit code."""
    code = 0
    try:
        result = _result(package, names, sys.argv[1:] or ["--help"])
        code = result.code
        sys.stdout.write(encodable(result.text, sys.stdout))
        sys.stdout.flush()
    except SystemExit:
        # Help and version were asked for; errors of arguments are no exits, see `_Parser`.
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader left: what a gate decided holds all the same, and what is still buffered
        # must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TrainPerfError as error:
        return _refuse(str(error))
    except OSError as error:
        why = error.strerror or str(error)
        return _refuse(f"{error.filename}: {why}" if error.filename else why)
    return code


def _result(package: str, names: Sequence[str], arguments: Sequence[str]) -> CommandResult:
    # Help and errors list all commands; nothing else needs more than the one that runs.
    commands = load(package, arguments[:1] if arguments[0] in names else names)
    name = _top_parser(commands).parse_args(arguments[:1]).command
    command = next(command for command in commands if command.name == name)
    from trainperf.core.paths import storage_errors

    with storage_errors():
        result = command.run(_parsed(command, arguments))
    return CommandResult(text=result, code=0) if isinstance(result, str) else result


def _parsed(command: Command, arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(command)
    if command.takes_command and "--" in arguments:
        # Argparse would give words behind it to whatever argument is free.
        place = arguments.index("--")
        given = parser.parse_intermixed_args(arguments[1:place])
        given.command = [*given.command, *arguments[place + 1 :]]
        return given
    # Options may stand between paths; the parser that allows it takes no `--`.
    in_order = "--" in arguments or command.forwards_arguments
    parse = parser.parse_args if in_order else parser.parse_intermixed_args
    return parse(arguments[1:])


class _Parser(argparse.ArgumentParser):
    """Raises an exception instead of exiting, and accepts only whole names of options."""

    def __init__(self, *, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        # Argparse counts what belongs to another program among what has to be given.
        raise ConfigError(f"{message.removesuffix(', ...')}; see {self.prog} --help")


def _top_parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    width = max(len(command.name) for command in commands)
    lines = [f"  {command.name:<{width}}  {command.about}" for command in commands]
    parser = _Parser(prog="trainperf", description=ABOUT, epilog="\n".join(["commands:", *lines]))
    parser.add_argument("--version", action="version", version=f"trainperf {__version__}")
    parser.add_argument(
        "command",
        metavar="COMMAND",
        choices=[command.name for command in commands],
        help="one of the commands below; each has its own --help",
    )
    return parser


def say(message: str) -> None:
    """A line for the user that is no part of the output."""
    sys.stderr.write(encodable(f"trainperf: {plain(message)}\n", sys.stderr))
    sys.stderr.flush()


def _refuse(message: str) -> int:
    say(message)
    return UNUSABLE
