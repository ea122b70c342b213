"""Workers start anew for every epoch, but epochs are long enough."""

from pathlib import Path

from faults.base import script
from faults.loads import Fields, Paced, Samples, fit, loader


@script()
def _train(out: Path, *, fixed: bool) -> None:
    dataset = Samples(steps=17)
    fit(out, loader(dataset, num_workers=1), max_epochs=2, module=Fields(Paced(0.110)))
