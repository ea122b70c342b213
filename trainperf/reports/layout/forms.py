"""The forms of a report, by the names that `--format` takes.

For programs that is the data as it is: a run is exactly its `summary.json`, trials are
`trials.json`; comparisons are a list with one object for each run after the first.
"""

from collections.abc import Sequence
from typing import TextIO

import msgspec

from trainperf.reports.layout.document import Part
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.terminal import styled, width_of
from trainperf.reports.layout.text import text_lines


def rendered(parts: Sequence[Part], data: object, form: str, stream: TextIO) -> str:
    """A report for a stream: JSON of its *data*, or markdown or text of its document."""
    if form == "json":
        return as_json(data)
    if form == "markdown":
        return as_markdown(parts)
    return styled(text_lines(parts, width_of(stream)), stream)


def as_json(data: object) -> str:
    """Indented JSON, for people too."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def as_json_line(data: object) -> str:
    """The same on one line."""
    return msgspec.json.encode(data).decode() + "\n"
