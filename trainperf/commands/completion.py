"""`trainperf completion SHELL`: the script by which a shell completes commands and options.

shtab writes it from the parsers, once: the shell runs nothing of ours when TAB is pressed.
"""

import argparse
import re
from collections.abc import Mapping, Sequence

from trainperf.commands.cli import Command, argument, load
from trainperf.core.errors import ConfigError


_SHELLS = ("bash", "zsh", "fish")

_PLACES = {
    "DIRECTORY": frozenset({"RUN", "DIR"}),
    "FILE": frozenset({"FILE", "PATH", "SCRIPT", "...", "-- COMMAND"}),
}
"""What shtab calls them, to names of values that are such; of others a shell has nothing to offer,
or their choices."""


def _run(given: argparse.Namespace) -> str:
    try:
        import shtab
    except ModuleNotFoundError:
        raise ConfigError("shtab: not installed; pip install shtab") from None
    from trainperf.commands import COMMANDS

    top = argparse.ArgumentParser(prog="trainperf")
    top.add_argument("--version", action="version", help="print the version")
    commands = top.add_subparsers()
    names = _names()
    for command in load("trainperf.commands", COMMANDS):
        parser = commands.add_parser(command.name, help=command.about)
        for add in command.arguments:
            add(parser)
        for action in parser._actions:  # noqa: SLF001 argparse has no public way to list them
            for place in (each for each, values in _PLACES.items() if action.metavar in values):
                action.complete = getattr(shtab, place)  # type: ignore[attr-defined]  # shtab's own
            if action.metavar in names:
                action.choices = names[str(action.metavar)]
    script: str = shtab.complete(top, given.shell)
    return f"{_mended_for_zsh(script) if given.shell == 'zsh' else script}\n"


def _mended_for_zsh(script: str) -> str:
    """The script with what shtab 1.13 gets wrong in it put right.

    It would complete the first of several values alone, as it excludes the rest where it means
    them, and could be read by `eval` but not by `source`.
    """
    script = re.sub(r'^( *)"\(\*\)::?', r'\1"*:', script, flags=re.MULTILINE)
    return script.replace("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] == (eval|file)")


def _names() -> Mapping[str, Sequence[str]]:
    """What values are called of which there is a list."""
    from trainperf.analysis.diagnosis.offers import OFFERS
    from trainperf.reports.explanations import explanations

    return {
        "NAME": sorted({entry.id for entry in explanations()}),
        "ID": sorted(offer.id for offer in OFFERS),
    }


COMMAND = Command(
    name="completion",
    about="Print what makes a shell complete commands, options, names and paths with TAB.",
    arguments=(argument("shell", metavar="SHELL", choices=_SHELLS, help="bash, zsh or fish"),),
    run=_run,
    examples=(
        "bash > ~/.local/share/bash-completion/completions/trainperf",
        "zsh > ~/.zfunc/_trainperf",
        "fish > ~/.config/fish/completions/trainperf.fish",
    ),
)
