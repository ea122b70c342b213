"""The trace report for programs: exactly the data."""

import msgspec

from trainperf.traces.results import TraceReport


def render(report: TraceReport) -> str:
    """The report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
