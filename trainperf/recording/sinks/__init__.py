"""Sinks: destinations of records and readings, one file each.

To add one: a file with a function `sink_for`, which returns the sink if its output is there, and
its name here.
"""

from trainperf.core.families import load_members
from trainperf.recording.sinks.base import Outputs, Sink


_SINKS = tuple(
    load_members(
        "trainperf.recording.sinks",
        (
            "jsonl",
            "loggers",
        ),
        "sink_for",
    )
)


def default_sinks(outputs: Outputs) -> list[Sink]:
    """A sink for each output that a fit has."""
    sinks = (sink_for(outputs) for sink_for in _SINKS)
    return [sink for sink in sinks if sink is not None]
