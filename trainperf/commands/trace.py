"""`trainperf trace PATH…`: what the profiler's traces say."""

from pathlib import Path
from typing import Annotated

import typer

from trainperf.reports import NAMES


def trace(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…",
            help="Traces (.json, .json.gz), or a directory with one per rank.",
            show_default=False,
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(NAMES), help="How to show it.")
    ] = "text",
    hta: Annotated[  # noqa: FBT002 a flag of the command line
        bool, typer.Option("--hta", help="Add the figures by HTA's definitions, to compare.")
    ] = False,
    lanes: Annotated[  # noqa: FBT002 same
        bool, typer.Option("--lanes", help="With --format json: the lanes for drawing, too.")
    ] = False,
) -> str:
    """Say what the device did in recorded steps, and what it waited for; of one rank or of all."""
    if format_ not in NAMES:
        raise typer.BadParameter(f"--format {format_}: choose from {', '.join(NAMES)}")
    # Here, so that the other commands do not pay for it.
    from trainperf.reports import trace_json, trace_markdown, trace_text  # noqa: PLC0415
    from trainperf.traces.folder import Wanted, report  # noqa: PLC0415

    render = {
        "text": trace_text.render,
        "json": trace_json.render,
        "markdown": trace_markdown.render,
    }[format_]
    return render(report(paths, Wanted(lanes=lanes, hta=hta)))
