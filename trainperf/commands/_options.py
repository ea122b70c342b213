"""Options that several commands have: format, engine, audit, turns and window."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from trainperf.core.window import RunWindow


_FORMATS = {
    "text": "for people",
    "markdown": "for issues and pull requests",
    "json": "for programs",
    "html": "a page, to be written to a file",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_format_option(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add `--format`, which takes these *names*."""
    meanings = ", ".join(f"{name} {_FORMATS[name]}" for name in names)
    parser.add_argument(
        "--format",
        choices=names,
        default="text",
        help=f"what is printed: {meanings} (default: text)",
    )


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """Add `--engine`, of commands that read many files."""
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="where files are read, with the same results: local[:N], N processes, or "
        "dask://HOST:PORT, the workers of a Dask scheduler, which needs trainperf[dask] "
        "(default: this process; for large files one process per processor)",
    )


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add the script, its arguments, and what is measured of it."""
    parser.add_argument(
        "--audit-at",
        metavar="N",
        type=at_least(0),
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


def add_turn_options(parser: argparse.ArgumentParser) -> None:
    """Add how long two trainings take turns."""
    parser.add_argument(
        "--pairs",
        metavar="N",
        type=at_least(1),
        default=10,
        help="most pairs of trainings for one decision; fewer are run where they decide it "
        "(default: 10)",
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=at_least(2),  # the first is excluded
        default=10,
        help="fewest steps before it is the other training's turn (default: 10)",
    )
    parser.add_argument(
        "--to-the-end",
        action="store_true",
        help="run every training to its end; otherwise a pair ends when it can show no more",
    )


def at_least(least: int) -> Callable[[str], int]:
    """The type of options that take a whole number: so many or more."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}: must be at least {least}")
        return value

    return number


def above_zero(text: str) -> float:
    """What somebody wrote as a number.

    Raises:
        argparse.ArgumentTypeError: It is none above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0, as in 2.5")
    return value


def add_steps_option(parser: argparse.ArgumentParser, meaning: str, default: str) -> None:
    """Add `--steps`, which means the *default* where it is not given."""
    parser.add_argument(
        "--steps",
        metavar="FIRST:LAST",
        type=_steps,
        help=f"{meaning}, both ends included; either may be left out, as in 10000: "
        f"(default: {default})",
    )


def add_window_options(parser: argparse.ArgumentParser) -> None:
    """Add `--steps`, `--since` and `--until`."""
    add_steps_option(parser, "only these steps", "all")
    for option, end, step in (("--since", "from", "first"), ("--until", "up to", "last")):
        parser.add_argument(
            option,
            metavar="TIME",
            type=_when,
            help=f"only {end} then: 2h, 90m or 1d before the last step, or a time in UTC such as "
            f"2026-11-22T14:00 (default: the {step} step)",
        )


def window_of(given: argparse.Namespace) -> "RunWindow | None":
    """What these options ask for; `None` for the whole run."""
    from trainperf.core.window import RunWindow

    first, last = given.steps or (None, None)
    window = RunWindow(first=first, last=last, since=given.since, until=given.until)
    return None if window == RunWindow() else window


def location(text: str) -> object:
    """The path or URL that somebody wrote, as a type of an argument: see `path_of`."""
    from trainperf.core.paths import path_of

    return path_of(text)


def _steps(text: str) -> tuple[int | None, int | None]:
    ends = re.fullmatch(r"(\d*):(\d*)", re.sub("[_,]", "", text))
    first, last = (int(end) if end else None for end in ends.groups()) if ends else (1, 0)
    if first is not None and last is not None and first > last:
        raise argparse.ArgumentTypeError(
            f"{text}: give the first and the last step, as in 10000:20000"
        )
    return first, last


def _when(text: str) -> object:
    from datetime import datetime, timedelta, timezone

    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.replace(".", "", 1).isdecimal():
        return timedelta(seconds=float(number) * _UNITS[unit])
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: give a duration such as 2h, 90m or 1d, or a time such as 2026-11-22T14:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
