"""Sinks: destinations of records and readings, one file each.

To add one: a file with a class, which is made here where its output is there.
"""

from trainperf.core.run_directory import attempt, record_file
from trainperf.recording.sinks.base import Sink
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.recording.sinks.loggers import CurveSink, Outputs


def default_sinks(outputs: Outputs) -> list[Sink]:
    """A sink for each output that a fit has: its record file, and what draws its curves."""
    sinks: list[Sink] = []
    if outputs.run is not None:
        sinks.append(JsonlSink(record_file(outputs.run, outputs.rank, attempt())))
    if outputs.writer or outputs.loggers or outputs.trackers:
        sinks.append(CurveSink(outputs))
    return sinks
