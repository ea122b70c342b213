"""A print in the middle of a compiled forward: two graphs instead of one."""

from pathlib import Path

from faults.base import ready, script, train
from faults.compiled import Compiled
from faults.models import WIDTH


@script("graph_breaks")
def _train(out: Path, *, fixed: bool) -> None:
    train(out, Compiled(prints=not fixed), ready(60, WIDTH))
