"""`trainperf watch RUN`: a run in the terminal, refreshed while it trains."""

import argparse
import sys

from trainperf.commands._options import above_zero, location
from trainperf.commands.cli import Command, argument
from trainperf.core.errors import ConfigError


def _run(given: argparse.Namespace) -> str:
    import contextlib
    import time
    from datetime import datetime, timezone

    from trainperf.analysis.run.directory import Run
    from trainperf.reports.watch import watch

    run = Run.open(given.run).path
    if not sys.stdout.isatty():
        raise ConfigError(
            f"watch: needs a terminal; `trainperf report {given.run}` prints the same once"
        )
    with contextlib.suppress(KeyboardInterrupt):
        watch(
            run,
            lambda: datetime.now(tz=timezone.utc).timestamp(),
            time.sleep,
            every_s=given.every,
        )
    return ""


COMMAND = Command(
    name="watch",
    about="Show a run in the terminal while it trains, also over SSH.",
    arguments=(
        argument(
            "run",
            metavar="RUN",
            type=location,
            help="run directory, or a directory above it, by path or URL",
        ),
        argument(
            "--every",
            type=above_zero,
            default=2.0,
            metavar="SECONDS",
            help="seconds between two looks at the files, at least; a URL needs more (default: 2)",
        ),
    ),
    run=_run,
    examples=("runs/a", "s3://bucket/runs/a --every 10"),
    gone={"--light": "the terminal's own colours hold"},
)
