"""An activation is written as its formula: eight elementwise operators instead of one."""

from pathlib import Path

from faults.base import script, train
from faults.models import Classifier
from faults.operators import Written, by_formula, in_one, ready


@script("elementwise_chain")
def _train(out: Path, *, fixed: bool) -> None:
    body = Written(in_one if fixed else by_formula, hidden=2048)
    train(out, Classifier(body), ready(60, 64, size=128))
