"""One of two ranks under Lightning and DDP, on one of which only trainperf is attached."""

import os
import sys
from pathlib import Path

import torch
from support.fits import Loader, Model, trainer

from trainperf.lightning import TrainPerf
from trainperf.recording import shared_run


STEPS = 8
HAVING = {"none": (), "first": (0,), "second": (1,), "both": (0, 1)}


def main(root: Path) -> None:
    """The same training each time, from the same parameters."""
    shared_run.PATIENCE_NS = 500_000_000
    rank = int(os.environ["RANK"])
    for name, having in HAVING.items():
        torch.manual_seed(0)
        model = Model()
        callbacks = [TrainPerf(report=False)] if rank in having else []
        fit = trainer(root / name, *callbacks, strategy="ddp", devices=2)
        fit.fit(model, Loader(STEPS))
        torch.save(model.state_dict(), root / f"{name}-{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
