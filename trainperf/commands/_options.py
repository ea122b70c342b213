"""Arguments that several commands have, and what somebody may write for them."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainperf.commands.cli import Argument, argument
from trainperf.reports import PAGES


if TYPE_CHECKING:
    from trainperf.core.window import RunWindow


_FORMATS = {
    "text": "for people",
    "markdown": "for issues and pull requests",
    "json": "for programs",
    "html": "a page, to be written to a file",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def format_argument(names: Sequence[str]) -> Argument:
    """`--format`, which takes these *names*."""
    meanings = ", ".join(f"{name} {_FORMATS[name]}" for name in names)
    return argument(
        "--format",
        choices=names,
        default="text",
        help=f"what is printed: {meanings} (default: text)",
    )


def at_least(least: int, most: float = math.inf) -> Callable[[str], int]:
    """The type of options that take a whole number: so many or more, and no more than *most*."""

    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            limit = f"at least {least}" if most == math.inf else f"a number from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text}: must be {limit}")
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


def share_of(text: str) -> float:
    """A share, written as `5%` or `0.05`."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a share, as in 5% or 0.05")
    return value


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


def steps_argument(meaning: str, default: str) -> Argument:
    """`--steps`, which means the *default* where it is not given."""
    return argument(
        "--steps",
        metavar="FIRST:LAST",
        type=_steps,
        help=f"{meaning}, both ends included; either may be left out, as in 10000: "
        f"(default: {default})",
    )


WINDOW = (
    steps_argument("only these steps", "all"),
    *(
        argument(
            option,
            metavar="TIME",
            type=_when,
            help=f"only {end} then: 2h, 90m or 1d before the last step, or a time in UTC such as "
            f"2026-11-22T14:00 (default: the {step} step)",
        )
        for option, end, step in (("--since", "from", "first"), ("--until", "up to", "last"))
    ),
)
"""What of a run is read: see `window_of`."""

ENGINE = argument(
    "--engine",
    metavar="ENGINE",
    help="where files are read, with the same results: local[:N], N processes, or "
    "dask://HOST:PORT, the workers of a Dask scheduler, which needs trainperf[dask] "
    "(default: this process; for large files one process per processor)",
)
"""Of commands that read many files."""

LAUNCH = (
    argument(
        "--audit-at",
        metavar="N",
        type=at_least(0),
        help="look at every operator of step N, counted from 0; that step takes longer and is left "
        "out of the statistics (default: with run an ordinary one from step 12 on, with try none)",
    ),
    argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as in python -m"),
    argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="arguments of the script"),
)
"""What is measured of a script, and its arguments."""

TURNS = (
    argument(
        "--pairs",
        metavar="N",
        type=at_least(1),
        default=10,
        help="most pairs of trainings for one decision; fewer are run where they decide it "
        "(default: 10)",
    ),
    argument(
        "--every",
        metavar="N",
        type=at_least(2),  # the first is excluded
        default=10,
        help="fewest steps before it is the other training's turn (default: 10)",
    ),
    argument(
        "--to-the-end",
        action="store_true",
        help="run every training to its end; otherwise a pair ends when it can show no more",
    ),
)
"""How long two trainings take turns."""

COMPARISON = (
    format_argument(PAGES),
    argument(
        "--loss-tolerance",
        metavar="SHARE",
        type=share_of,
        help="relative difference up to which the losses match, as in 2%% or 0.02 (default: 2%%)",
    ),
    argument(
        "--margin",
        metavar="SHARE",
        type=share_of,
        help="relative change up to which speeds count as equal, as in 2%% or 0.02 (default: 2%%)",
    ),
    argument(
        "--fail-on-regression",
        metavar="SHARE",
        type=share_of,
        help="exit with 0 if a slowdown of more than SHARE is excluded, with 1 if one is shown or "
        "the loss differs, with 3 if neither, with 2 if the runs are not comparable (default: no "
        "gate, exit with 0)",
    ),
    argument(
        "--decide",
        action="store_true",
        help="exit with 0 to keep the change (faster, or --fail-on-regression passes), with 1 to "
        "discard it, with 3 if that cannot be told, with 2 if the runs are not comparable",
    ),
    argument(
        "--undecided",
        choices=("pass", "fail"),
        default="fail",
        help="where the gate or decision is open, exit with 0 (pass) or with 3 (fail) "
        "(default: fail)",
    ),
)
"""Of every comparison."""
