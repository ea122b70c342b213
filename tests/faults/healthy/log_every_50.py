"""Forty values, logged and written every fiftieth step."""

from pathlib import Path

from faults.base import Script, ready, train
from faults.logs import Logs, Nowhere
from faults.models import WIDTH


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    loader = ready(80, WIDTH)
    train(out, Logs(40, every=50), loader, logger=Nowhere(), log_every_n_steps=50)


SCRIPT = Script(train=_train)
