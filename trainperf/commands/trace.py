"""`trainperf trace PATH…`: the analysis of profiler traces."""

import argparse
import sys

from trainperf.commands._options import ENGINE, format_argument, location, steps_argument
from trainperf.commands.cli import Command, argument
from trainperf.reports import NAMES


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.diagnosis.of_capture import diagnosed
    from trainperf.reports.capture.document import capture_document
    from trainperf.reports.layout.forms import as_json, rendered
    from trainperf.traces.job_report import reports
    from trainperf.traces.results import AnalysisOptions

    options = AnalysisOptions(lanes=given.lanes, steps=given.steps or (None, None))
    jobs = tuple(map(diagnosed, reports(given.paths, options, given.engine)))
    if given.format == "json":
        return as_json(jobs[0] if len(jobs) == 1 else jobs)
    documents = map(capture_document, jobs)
    return "\n".join(rendered(each, None, given.format, sys.stdout) for each in documents)


COMMAND = Command(
    name="trace",
    about="Show what the device did in profiled steps and what it waited for; one rank or all.",
    examples=("trace.json.gz", "runs/a/traces", "traces --format json --engine local:4"),
    arguments=(
        argument(
            "paths",
            metavar="PATH",
            nargs="+",
            type=location,
            help="trace file (.json, .json.gz), or a directory with one per rank, by path or URL;"
            " each job is reported on its own",
        ),
        format_argument(NAMES),
        argument(
            "--lanes",
            action="store_true",
            help="with --format json: add the lanes of a timeline, for those who draw one",
        ),
        steps_argument(
            "of a directory, the last capture that begins with one of these steps",
            "the last capture",
        ),
        ENGINE,
    ),
    run=_run,
)
