"""The forms of a run's report: for a terminal, for a file, and for programs."""

from collections.abc import Callable, Mapping
from typing import TextIO

from trainperf.analysis.summary.schema import Summary
from trainperf.reports.layout.json import summary_json
from trainperf.reports.layout.terminal import styled, width_of
from trainperf.reports.run import markdown, text


FORMATS: Mapping[str, Callable[[Summary], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "json": summary_json,
}


def write_report(summary: Summary, stream: TextIO) -> None:
    """Write the text report to a stream."""
    stream.write(rendered(summary, stream))


def rendered(summary: Summary, stream: TextIO, *, full: bool = False) -> str:
    """The text report for a stream: styled if it is a terminal that wants it, else plain."""
    width = width_of(stream)
    more = text.full_lines(summary, width) if full else []
    return styled([*text.lines(summary, width, whole=full), *more], stream)
