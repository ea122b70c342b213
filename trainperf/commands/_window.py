"""Options that choose a window of a run: by steps, or by time."""

import argparse
from datetime import datetime, timedelta, timezone

from trainperf.core.window import RunWindow


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


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


def window_of(given: argparse.Namespace) -> RunWindow | None:
    """What was asked for; `None` for the whole run."""
    first, last = given.steps or (None, None)
    window = RunWindow(first=first, last=last, since=given.since, until=given.until)
    return None if window == RunWindow() else window


def _steps(text: str) -> tuple[int | None, int | None]:
    first, colon, last = text.replace("_", "").replace(",", "").partition(":")
    wrong = not colon or any(end and not end.isdecimal() for end in (first, last))
    numbers = None if wrong else (int(first) if first else None, int(last) if last else None)
    if numbers is None or (last and (numbers[0] or 0) > int(last)):
        raise argparse.ArgumentTypeError(
            f"{text}: give the first and the last step, as in 10000:20000"
        )
    return numbers


def _when(text: str) -> timedelta | datetime:
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
