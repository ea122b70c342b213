"""Options that several commands have, each explained in one place: format, audit, turns."""

import argparse
from collections.abc import Sequence

from trainperf.core.errors import ConfigError


_FORMATS = {
    "text": "for people",
    "markdown": "for issues and pull requests",
    "json": "for programs",
    "html": "a page, to be written to a file",
}


def add_format_option(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add `--format`, which takes these *names*."""
    meanings = ", ".join(f"{name} {_FORMATS[name]}" for name in names)
    parser.add_argument(
        "--format",
        choices=names,
        default="text",
        help=f"what is printed: {meanings} (default: text)",
    )


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add the script, its arguments, and what is measured of it."""
    parser.add_argument(
        "--audit-at",
        metavar="N",
        type=int,
        help="look at every operator of step N, counted from 0; that step takes longer and is left "
        "out of the statistics (default: with run an ordinary one from step 12 on, with try none)",
    )
    parser.add_argument(
        "--loader-anatomy",
        action="store_true",
        help="time the parts of the data loader before the first step, on batches of its own",
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module, as in python -m"
    )
    parser.add_argument(
        "arguments", metavar="...", nargs=argparse.REMAINDER, help="arguments of the script"
    )


def check_launch(given: argparse.Namespace) -> None:
    """Refuse a step that there is not.

    Raises:
        ConfigError: It is below 0.
    """
    if given.audit_at is not None and given.audit_at < 0:
        raise ConfigError(f"--audit-at {given.audit_at}: steps count from 0; try --audit-at 20")


def add_turn_options(parser: argparse.ArgumentParser) -> None:
    """Add how long two trainings take turns."""
    parser.add_argument(
        "--pairs",
        metavar="N",
        type=int,
        default=10,
        help="most pairs of trainings for one decision; fewer are run where they decide it "
        "(default: 10)",
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=int,
        default=10,
        help="fewest steps before it is the other training's turn (default: 10)",
    )
    parser.add_argument(
        "--to-the-end",
        action="store_true",
        help="run every training to its end; otherwise a pair ends when it can show no more",
    )


def check_turns(given: argparse.Namespace) -> None:
    """Refuse turns that decide nothing.

    Raises:
        ConfigError: No pair, or no step but the first.
    """
    if given.pairs < 1:
        raise ConfigError(f"--pairs {given.pairs}: must be at least 1; try 10")
    if given.every < 2:
        raise ConfigError(
            f"--every {given.every}: must be at least 2, the first step is excluded; try 10"
        )


def number(text: str) -> float:
    """What somebody wrote as a number.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: give a number, as in 2.5") from None
