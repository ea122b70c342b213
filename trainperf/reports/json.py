"""The report for programs: exactly `summary.json`."""

from trainperf.results import Summary, encode_summary


def render(summary: Summary) -> str:
    """The summary as indented JSON."""
    return encode_summary(summary).decode()
