"""Forty values, logged and written every fiftieth step."""

from pathlib import Path

from faults.base import ready, script, train
from faults.logs import Logs, Nowhere
from faults.models import WIDTH


@script()
def _train(out: Path, *, fixed: bool) -> None:
    loader = ready(80, WIDTH)
    train(out, Logs(40, every=50), loader, logger=Nowhere(), log_every_n_steps=50)
