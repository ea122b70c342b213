"""A Python number changes now and then, and is compiled into the graph."""

from pathlib import Path

from faults.base import ready, script, train
from faults.compiled import Compiled, every_eighth
from faults.models import WIDTH


@script("recompiles")
def _train(out: Path, *, fixed: bool) -> None:
    model = Compiled() if fixed else Compiled(level=every_eighth(1, 1))
    train(out, model, ready(60, WIDTH))
