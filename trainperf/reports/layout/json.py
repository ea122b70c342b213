"""Results for programs: the data as it is, nothing added.

A run is exactly its `summary.json`, trials are `trials.json`; comparisons are a list with one
object for each run after the first; explanations, offers and checkups are what their structs say.
"""

from collections.abc import Sequence

import msgspec

from trainperf.traces.results import TraceReport


def as_json(data: object) -> str:
    """Indented JSON, for people too."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def as_json_line(data: object) -> str:
    """The same on one line."""
    return msgspec.json.encode(data).decode() + "\n"


def trace_json(reports: Sequence[TraceReport]) -> str:
    """The report of a job's traces; of several jobs a list of them."""
    return as_json(reports[0] if len(reports) == 1 else reports)
