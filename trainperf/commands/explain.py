"""`trainperf explain NAME`: what a finding, reading, check, phase or trial means."""

import argparse
import sys

from trainperf.commands._options import format_argument, location
from trainperf.commands.cli import Command, argument
from trainperf.core.errors import ConfigError
from trainperf.reports import NAMES


def _run(given: argparse.Namespace) -> str:
    if given.schema is not None:
        shipped = schemas()
        if given.schema not in shipped:
            raise ConfigError(
                f"--schema {given.schema}: no such document; there are {', '.join(shipped)}"
            )
        return shipped[given.schema]
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
    else:
        entries = [entry for name in given.name for entry in explained(name)]
    lists = given.run is None and not entries
    if not entries and not lists and given.format != "json":
        return f"{given.run}: no finding; `trainperf report` shows what was measured\n"
    shown = explanations() if lists else entries
    is_index = lists and given.format == "text"
    parts = index_document() if is_index else explanations_document(shown)
    return rendered(parts, shown, given.format, sys.stdout)


def schemas() -> dict[str, str]:
    """Each document of which a schema is shipped, with it."""
    from importlib.resources import files

    shipped = sorted((files("trainperf") / "schemas").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".json"): file.read_text(encoding="utf-8") for file in shipped}


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
            metavar="DOCUMENT",
            help="print the JSON Schema of what a command prints: summary, finding, comparison, "
            "trace, doctor, trials, offers or explanation (default: no schema)",
        ),
    ),
    run=_run,
)
