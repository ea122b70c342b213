"""Output to a terminal, a pipe or a log file: width and styles."""

import io
import os
import shutil
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from trainperf.core.formatting.escape import encodable
from trainperf.core.formatting.wrap import WIDTH


LEAST_WIDTH = 60
MOST_WIDTH = 110


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
    tells = stream.isatty() or "COLUMNS" in os.environ
    columns = shutil.get_terminal_size((WIDTH, 24)).columns if tells else WIDTH
    return min(max(columns, LEAST_WIDTH), MOST_WIDTH)
