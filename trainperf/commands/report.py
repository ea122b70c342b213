"""`trainperf report RUN`: the answer, from disk."""

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from trainperf.reports import NAMES


def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Run directory, or one above it.", show_default=False),
    ],
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(NAMES), help="How to show it.")
    ] = "text",
) -> str:
    """Say where the time of a run went and what to change first; also while it is running."""
    if format_ not in NAMES:
        raise typer.BadParameter(f"--format {format_}: choose from {', '.join(NAMES)}")
    # Here, so that no command pays for what another one needs.
    from trainperf.reports.formats import FORMATS  # noqa: PLC0415
    from trainperf.reports.terminal import rendered  # noqa: PLC0415
    from trainperf.run import Run  # noqa: PLC0415
    from trainperf.summary import summarize  # noqa: PLC0415

    now_s = datetime.now(tz=timezone.utc).timestamp()
    summary = summarize(Run.open(run), now_s=now_s)
    return rendered(summary, sys.stdout) if format_ == "text" else FORMATS[format_](summary)
