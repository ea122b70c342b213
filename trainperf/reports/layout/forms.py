"""The forms of a report, by the names that `--format` takes."""

from collections.abc import Sequence
from typing import TextIO

from trainperf.reports.layout.document import Part
from trainperf.reports.layout.json import as_json
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
