"""What happens after the fit: the summary is written and the report printed, by rank 0.

The offline tower is loaded only here, when nothing trains any more.
"""

import sys
import time
from pathlib import Path

from trainperf.analysing import Analyst, Errand
from trainperf.clocks.host import monotonic_ns
from trainperf.results import Summary
from trainperf.rundir import attempt, has_ended, record_file


WAIT_NS = 5_000_000_000
"""Longest wait for the other ranks on this file system to close their files."""


def close_run(run: Path, *, ranks: int, aloud: bool) -> Summary:
    """Write `summary.json` once every rank has ended, and print the report if *aloud*.

    Raises:
        RunError: The directory holds no run.
        OSError: The summary cannot be written.
    """
    from trainperf.reports.terminal import write_report  # noqa: PLC0415
    from trainperf.summary import write_summary  # noqa: PLC0415

    _wait_for(run, ranks)
    if ranks > 1:
        join_captures(run)
    summary = write_summary(run)
    if aloud:
        sys.stdout.write("\n")
        write_report(summary, sys.stdout)
        sys.stdout.write(f"\n  {run}\n")
        sys.stdout.flush()
    return summary


def join_captures(run: Path) -> None:
    """Have the traces read that no rank has, together those of the same steps."""
    from trainperf.traces.captured import analysis_file, groups  # noqa: PLC0415

    analyst = Analyst()
    for traces in groups(run):
        if not analysis_file(traces).exists():
            analyst.send(Errand(tuple(traces)))
    analyst.finish()


def _wait_for(run: Path, ranks: int) -> None:
    """Other ranks end within moments; those on other machines may never appear here."""
    deadline = monotonic_ns() + WAIT_NS
    waiting = [record_file(run, rank, attempt()) for rank in range(1, ranks)]
    while waiting and monotonic_ns() < deadline:
        waiting = [path for path in waiting if not has_ended(path)]
        time.sleep(0.02)
