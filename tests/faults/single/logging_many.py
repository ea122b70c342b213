"""Forty values are logged in every step, and written in every step."""

from pathlib import Path

from faults.base import ready, script, train
from faults.logs import Logs, Nowhere
from faults.models import WIDTH


@script("logging")
def _train(out: Path, *, fixed: bool) -> None:
    model = Logs(40, every=50 if fixed else 1)
    steps = 50 if fixed else 1
    loader = ready(60, WIDTH)
    train(out, model, loader, logger=Nowhere(), log_every_n_steps=steps)
