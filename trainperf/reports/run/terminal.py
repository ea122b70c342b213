"""How does a report reach a terminal, a pipe, or a log file?"""

import io
import os
import shutil
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.reports.layout.encoding import encodable
from trainperf.reports.run.full_text import full_lines
from trainperf.reports.run.text import WIDTH, lines


LEAST_WIDTH = 60
MOST_WIDTH = 110


def write_report(summary: Summary, stream: TextIO) -> None:
    """Write the text report to a stream."""
    stream.write(rendered(summary, stream))


def rendered(summary: Summary, stream: TextIO, *, full: bool = False) -> str:
    """The text report for a stream: styled if it is a terminal that wants it, else plain."""
    width = width_of(stream)
    more = full_lines(summary, width) if full else []
    return styled([*lines(summary, width), *more], stream)


def styled(report: Sequence[Text], stream: TextIO) -> str:
    """Lines for a stream, with their styles where it takes them."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return encodable("".join(line.plain.rstrip() + "\n" for line in report), stream)
    canvas = io.StringIO()
    console = Console(file=canvas, force_terminal=True, highlight=False, width=MOST_WIDTH)
    for line in report:
        console.print(line, no_wrap=True, crop=False, overflow="ignore")
    return encodable(canvas.getvalue(), stream)


def width_of(stream: TextIO) -> int:
    """Columns of a terminal, within bounds in which a report reads well; `WIDTH` elsewhere."""
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    if not stream.isatty() and "COLUMNS" not in os.environ:
        columns = WIDTH
    return min(max(columns, LEAST_WIDTH), MOST_WIDTH)
