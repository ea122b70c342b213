"""Output for a person: a first answer when the warm-up ends, the report when the fit does."""

from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from trainperf.audit.chip_cache import note_chip
from trainperf.lightning.session import Session
from trainperf.loop.finish import close_run, first_answer, of_all_ranks, show
from trainperf.meters.fold import Reading


def announce(readings: dict[str, Reading], *, written: bool) -> None:
    """The first answer, so that nobody waits for the end of the fit."""
    answer = first_answer(readings, written=written)
    if answer is not None:
        rank_zero_info("%s", answer)


def report(session: Session, trainer: "pl.Trainer", *, aloud: bool, wait: bool) -> None:
    """Write the summary and print the report, on rank 0.  After the fit: it may take its time."""
    run = session.run
    if run is None or not trainer.is_global_zero:
        return
    session.monitor.guard.run("chip", lambda: note_chip(run, measure=wait))
    ranks = trainer.world_size if wait else 1
    session.monitor.guard.run("report", lambda: _report(run, trainer, ranks, aloud=aloud))


def _report(run: Path, trainer: "pl.Trainer", ranks: int, *, aloud: bool) -> None:
    summary = close_run(run, ranks=ranks, aloud=aloud)
    values = of_all_ranks(summary)
    for logger in trainer.loggers:
        if values:  # live, each rank knows only its own
            logger.log_metrics(values, step=trainer.global_step)
        show(getattr(logger, "experiment", None), summary, trainer.global_step)
