"""A print in the middle of a compiled forward: two graphs instead of one."""

from pathlib import Path

from faults.base import Script, ready, train
from faults.compiled import Compiled
from faults.models import WIDTH


def _train(out: Path, *, fixed: bool) -> None:
    train(out, Compiled(prints=not fixed), ready(60, WIDTH))


SCRIPT = Script(expected=("graph_breaks",), train=_train)
