"""What `--help` tells of every command: the gain first, defaults, examples, and the same words."""

import argparse
import shlex
from collections import defaultdict
from collections.abc import Iterator

import pytest

from trainperf.commands import COMMANDS
from trainperf.commands.cli import Command, load, parser_of


LOADED = {command.name: command for command in load("trainperf.commands", COMMANDS)}

OF_ITS_OWN = {
    ("import", "--format"): "formats of logs, not of reports",
    ("import", "--out"): "named by the log",
    ("run", "--out"): "a folder for one run",
    ("merge", "--out"): "the run itself",
    ("try", "--out"): "a folder of its own",
    ("bisect", "--out"): "a folder of its own",
    ("prove", "--out"): "a folder of its own",
    ("trace", "--steps"): "steps of captures",
    ("watch", "--every"): "seconds, not steps",
}
"""Options that mean another thing than elsewhere, or have another default."""

each_command = pytest.mark.parametrize("command", LOADED.values(), ids=LOADED)


def options(command: Command) -> Iterator[argparse.Action]:
    """Those of a command, but for `--help`."""
    actions = parser_of(command)._actions
    return (action for action in actions if action.option_strings and action.dest != "help")


@each_command
def test_the_first_line_is_a_sentence_on_one_line(command: Command) -> None:
    """Also in the list of all commands, on a terminal of 100 columns."""
    assert command.about.endswith(".")
    assert "\n" not in command.about
    assert len(f"  {'':<{max(map(len, COMMANDS))}}  {command.about}") <= 100


@each_command
def test_everything_that_can_be_given_is_explained(command: Command) -> None:
    """An option that takes a value says what holds without it, and has a name for the value."""
    for action in parser_of(command)._actions:
        assert action.help, action
    for action in options(command):
        if action.nargs != 0:
            covered = "(default: " in action.help or "(required)" in action.help
            assert covered, f"{action.option_strings}: say what holds without it: (default: ...)"
            assert action.choices or action.metavar, action.option_strings


@each_command
def test_the_default_that_is_told_is_the_one_that_holds(command: Command) -> None:
    """Numbers and names, where the parser has them."""
    for action in options(command):
        if action.default not in (None, False, []):
            value = f"{action.default:g}" if isinstance(action.default, float) else action.default
            assert f"(default: {value})" in (action.help or ""), action.option_strings


@each_command
def test_the_examples_can_be_typed(command: Command) -> None:
    """At least two, which the command's own parser accepts."""
    assert len(command.examples) >= 2
    for example in command.examples:
        words, _, rest = example.partition(" > ")[0].partition(" -- ")
        parser = parser_of(command)
        if command.takes_command:
            given = parser.parse_intermixed_args(shlex.split(words))
            assert rest
        elif command.forwards_arguments:
            given = parser.parse_args(shlex.split(words))
        else:
            given = parser.parse_intermixed_args(shlex.split(words))
        assert vars(given)


@each_command
def test_the_help_shows_the_examples_after_the_options(command: Command) -> None:
    """With the command's name, ready to be copied."""
    shown = parser_of(command).format_help()

    _, _, examples = shown.partition("\nexamples:\n")
    assert [line.strip() for line in examples.splitlines()] == [
        f"trainperf {command.name} {example}" for example in command.examples
    ]


def test_an_option_of_several_commands_has_one_name_for_its_value_and_one_explanation() -> None:
    """But for those that are another thing; forms of reports differ in their number alone."""
    told = defaultdict(set)
    for command in LOADED.values():
        for action in options(command):
            name = action.option_strings[0]
            if (command.name, name) not in OF_ITS_OWN:
                words = "" if name == "--format" else action.help
                told[name].add((action.metavar, words))

    assert {name: each for name, each in told.items() if len(each) > 1} == {}


def test_nothing_is_excepted_that_is_no_option() -> None:
    """Of what means another thing."""
    every = {(c.name, a.option_strings[0]) for c in LOADED.values() for a in options(c)}

    assert set(OF_ITS_OWN) <= every
