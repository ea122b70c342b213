"""A fit that trains until it is killed: run by a test, with the directory as its argument."""

import sys
from pathlib import Path

from support.fits import Loader, Model, trainer

from trainperf.lightning import TrainPerf


if __name__ == "__main__":
    training = trainer(
        Path(sys.argv[1]), TrainPerf(report=False, log_every_n_steps=1), log_every_n_steps=1
    )
    training.fit(Model(), Loader(10_000_000))
