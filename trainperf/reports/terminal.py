"""How does a report reach a terminal, a pipe, or a log file?"""

import os
import shutil
from typing import TextIO

from rich.console import Console

from trainperf.reports.text import WIDTH, lines
from trainperf.results import Summary


LEAST_WIDTH = 60
MOST_WIDTH = 110

_ASCII = str.maketrans(
    {"█": "#", "·": "-", "×": "x", "–": "-", "…": "...", "µ": "u", **dict.fromkeys("▏▎▍▌▋▊▉", "")}
)


def write_report(summary: Summary, stream: TextIO) -> None:
    """Write the text report: styled on a terminal that wants it, plain everywhere else."""
    styled = stream.isatty() and not os.environ.get("NO_COLOR") and _terminal() != "dumb"
    console = Console(
        file=stream,
        force_terminal=styled,
        color_system="auto" if styled else None,
        legacy_windows=False,
        highlight=False,
        width=MOST_WIDTH,
    )
    for line in lines(summary, _width(stream)):
        if styled:
            console.print(line, no_wrap=True, crop=False, overflow="ignore")
        else:
            stream.write(encodable(line.plain.rstrip() + "\n", stream))


def encodable(text: str, stream: TextIO) -> str:
    """*text*, with plain letters for the typographic ones that the stream cannot take."""
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def _terminal() -> str:
    return os.environ.get("TERM", "")


def _width(stream: TextIO) -> int:
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    if not stream.isatty() and "COLUMNS" not in os.environ:
        columns = WIDTH
    return min(max(columns, LEAST_WIDTH), MOST_WIDTH)
