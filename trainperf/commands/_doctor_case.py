"""What do the checks say of a run directory, and how is it shown?"""

import sys
from datetime import datetime, timezone
from pathlib import Path

from trainperf.analysis.doctor import Case, Checkup, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.loss_parity import parity
from trainperf.commands.cli import CommandResult
from trainperf.reports.doctor import markdown as doctor_markdown
from trainperf.reports.doctor import text as doctor_text
from trainperf.reports.layout.json import checkup_json
from trainperf.reports.layout.terminal import styled, width_of


def checked(
    path: Path, baseline: Path | None, *, form: str, strict: bool, name: str | None = None
) -> CommandResult:
    """Check the run at or below *path*, against a baseline if there is one.

    Args:
        path: A run directory, or one above it.
        baseline: Another one.
        form: One of `reports.NAMES`.
        strict: Whether a failed check is an exit code of 1.
        name: What to call the run, if not by its directory.

    Raises:
        RunError: One of them is no run directory.
    """
    case = _case(Run.open(path), baseline)
    checkup = examined(case)
    failed = strict and checkup.number("fail") > 0
    return CommandResult(
        text=_shown(checkup, name or case.summary.run.name, form), code=1 if failed else 0
    )


def _case(run: Run, baseline: Path | None) -> Case:
    now_s = datetime.now(tz=timezone.utc).timestamp()
    evidence = examine(run, now_s=now_s)
    if baseline is None:
        return Case(evidence=evidence)
    before = Run.open(baseline)
    return Case(
        evidence=evidence, baseline=examine(before, now_s=now_s), parity=parity(run, before)
    )


def _shown(checkup: Checkup, name: str, form: str) -> str:
    if form == "json":
        return checkup_json(checkup)
    if form == "markdown":
        return doctor_markdown.render(checkup, name)
    return styled(doctor_text.lines(checkup, name, width_of(sys.stdout)), sys.stdout)
