"""`trainperf explain NAME`: what a finding, reading, check, phase or trial means."""

import argparse
import sys

from trainperf.commands._options import format_argument, location
from trainperf.commands.cli import Command, argument
from trainperf.reports import NAMES


def _run(given: argparse.Namespace) -> str:
    if given.schema is not None:
        from importlib.resources import files

        return (files("trainperf") / "schemas" / f"{given.schema}.json").read_text(encoding="utf-8")
    from trainperf.reports.explanations import (
        explained,
        explained_in_run,
        explanations,
        explanations_document,
        index_document,
    )
    from trainperf.reports.layout.forms import rendered

    if given.run is not None:
        from trainperf.analysis.run.directory import Run
        from trainperf.analysis.summarize import summarize

        entries = explained_in_run(given.name, summarize(Run.open(given.run)))
        if not entries and given.format != "json":
            return f"{given.run}: no finding; `trainperf report` shows what was measured\n"
    elif given.name:
        entries = [entry for name in given.name for entry in explained(name)]
    else:
        entries = list(explanations())
    is_index = given.run is None and not given.name and given.format == "text"
    parts = index_document() if is_index else explanations_document(entries)
    return rendered(parts, entries, given.format, sys.stdout)


COMMAND = Command(
    name="explain",
    about="Say what a finding, reading, check, phase or trial means, and when not to believe it.",
    examples=(
        "data_wait",
        "data_wait --run runs/a",
        "mfu step_s --format markdown",
        "--schema summary",
    ),
    arguments=(
        argument(
            "name",
            metavar="NAME",
            nargs="*",
            help="id of a finding, reading, check, phase, gap or trial; without one all are listed",
        ),
        argument(
            "--run",
            metavar="RUN",
            type=location,
            help="of findings, answers for this run: what the change gains, the days it takes, "
            "their ratio, what would be better, the ceiling and how far it is; without a "
            "name of all findings that the run has (default: no run)",
        ),
        format_argument(NAMES),
        argument(
            "--schema",
            choices=(
                "summary",
                "finding",
                "comparison",
                "trace",
                "doctor",
                "trials",
                "offers",
                "explanation",
            ),
            help="print the JSON Schema of what a command prints (default: no schema)",
        ),
    ),
    run=_run,
)
