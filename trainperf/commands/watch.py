"""`trainperf watch RUN`: a run in the terminal, refreshed while it trains."""

import argparse
import math
import sys

from trainperf.commands._options import number
from trainperf.commands.cli import Command
from trainperf.core.errors import ConfigError
from trainperf.core.places import path_of


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        type=path_of,
        help="run directory, or a directory above it, by path or URL",
    )
    parser.add_argument(
        "--every",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two looks at the files, at least; a URL needs more (default: 2)",
    )
    parser.add_argument(
        "--light", action="store_true", help="for a terminal with a light background; d switches"
    )


def _seconds(text: str) -> float:
    seconds = number(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0; try 2")
    return seconds


def _run(given: argparse.Namespace) -> str:
    from datetime import datetime, timezone

    from trainperf.analysis.live import LiveRun

    try:
        from trainperf.reports.watch.app import WatchApp
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("textual"):
            raise
        raise ConfigError("watch: needs Textual: pip install 'trainperf[watch]'") from None
    run = LiveRun(given.run)
    # Textual draws on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise ConfigError(
            f"watch: needs a terminal; `trainperf report {given.run}` prints the same once"
        )
    WatchApp(
        run,
        lambda: datetime.now(tz=timezone.utc).timestamp(),
        every_s=given.every,
        light=given.light,
    ).run()
    return ""


COMMAND = Command(
    name="watch",
    about="Show a run in the terminal while it trains, also over SSH; needs trainperf[watch].",
    add_arguments=_add_arguments,
    run=_run,
    examples=("runs/a", "s3://bucket/runs/a --every 10"),
)
