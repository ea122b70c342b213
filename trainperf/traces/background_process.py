"""The low-priority process of a fit that reads the traces of one capture.

`python -m trainperf.traces.background_process TRACE…` writes the analysis next to the first trace,
and prints what went wrong, if anything, as one line of JSON.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trainperf.core.errors import TrainPerfError
from trainperf.core.machine.processes import run_beside_parent
from trainperf.traces.capture_files import CaptureReport, analysis_file, facts_of, write
from trainperf.traces.job_report import report


ENGINE = "local:2"
"""Of large traces: the other processors are the training's."""


def main(arguments: Sequence[str]) -> int:
    """Read, write down, say."""
    parser = argparse.ArgumentParser(prog="trainperf.traces.background_process")
    parser.add_argument("traces", type=Path, nargs="+")
    chosen = parser.parse_args(arguments)
    run_beside_parent(signal.SIGTERM)
    outcome: dict[str, str] = {}
    try:
        read(chosen.traces)
    except (TrainPerfError, OSError, MemoryError) as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
    return 0


def read(traces: Sequence[Path]) -> None:
    """Write the analysis of these traces.

    Raises:
        TraceError: None of them can be used.
        OSError: The run directory cannot be written.
    """
    facts = facts_of(traces[0])
    job = report(list(traces), engine=ENGINE)
    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    write(CaptureReport(**fields, capture=facts), analysis_file(traces))
    if len(traces) > 1:  # one file per capture: what it replaces says less
        for trace in traces:
            analysis_file([trace]).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
