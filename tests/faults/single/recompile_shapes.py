"""Every eighth batch is one row longer, and the model is compiled for each length."""

from pathlib import Path

from faults.base import ready, script, train
from faults.compiled import Compiled, every_eighth
from faults.models import WIDTH


@script("recompiles")
def _train(out: Path, *, fixed: bool) -> None:
    model = Compiled(length=every_eighth(200, 8), dynamic=fixed)
    train(out, model, ready(60, WIDTH))
