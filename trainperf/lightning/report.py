"""What a person sees: a first answer when the warm-up ends, the report when the fit does."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from trainperf.clocks.host import monotonic_ns
from trainperf.lightning.session import Session
from trainperf.meters.fold import Reading
from trainperf.rundir import record_file
from trainperf.sinks.tensorboard import PREFIX
from trainperf.units import bracket, duration, share


WAIT_NS = 5_000_000_000
"""Longest wait, after the fit, for the other ranks on this file system to close their files."""


def announce(readings: dict[str, Reading]) -> None:
    """The first answer, so that nobody waits for the end of the fit."""
    step, waited = readings["step_s"], readings["data_wait_fraction"]
    if step.value is None:
        return
    sure = bracket(step.value, step.low, step.high)
    waiting = f", {share(waited.value)} of it waiting for data" if waited.value is not None else ""
    rank_zero_info(
        "trainperf: warm-up over, %s a step%s%s; the full report comes when the fit ends, or "
        "now with `trainperf report` on the run directory",
        duration(step.value),
        sure,
        waiting,
    )


def report(session: Session, trainer: "pl.Trainer", *, aloud: bool, wait: bool) -> None:
    """Write the summary and print the report, on rank 0.  After the fit: it may take its time."""
    run = session.run
    if run is None or not trainer.is_global_zero:
        return
    if wait and trainer.world_size > 1:
        _wait_for_ranks(run, trainer.world_size)
    session.monitor.guard.run("report", lambda: _report(run, trainer, aloud=aloud))


def _report(run: Path, trainer: "pl.Trainer", *, aloud: bool) -> None:
    # The offline tower is loaded only now, when nothing trains any more.
    from trainperf.reports import markdown  # noqa: PLC0415
    from trainperf.reports.terminal import write_report  # noqa: PLC0415
    from trainperf.summary import write_summary  # noqa: PLC0415

    summary = write_summary(run)
    if aloud:
        sys.stdout.write("\n")
        write_report(summary, sys.stdout)
        sys.stdout.write(f"\n  {run}\n")
        sys.stdout.flush()
    for logger in trainer.loggers:
        add_text: Callable[..., object] | None
        add_text = getattr(getattr(logger, "experiment", None), "add_text", None)
        if callable(add_text):
            add_text(f"{PREFIX}summary", markdown.render(summary), trainer.global_step)


def _wait_for_ranks(run: Path, ranks: int) -> None:
    """Other ranks end within moments; those on other machines may never appear here."""
    deadline = monotonic_ns() + WAIT_NS
    paths = [record_file(run, rank) for rank in range(1, ranks)]
    while monotonic_ns() < deadline and not all(_ended(path) for path in paths):
        time.sleep(0.02)


def _ended(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 200))
            return b'"kind":"end"' in file.read()
    except OSError:
        return False
