"""A user's own meters, probes and sinks under Lightning."""

from pathlib import Path

import torch
from support.fits import Loader, Model, read, trainer
from support.own import LineProbe, Lines

from trainperf.lightning import TrainPerf
from trainperf.lightning.callback import AutoTrainPerf


BATCH = {"x": torch.ones(2, 4), "lines": 15}


def test_the_scripts_own_callback_leads_that_of_trainperf_run(tmp_path: Path) -> None:
    """Wherever it comes from: those of the module are attached after all others."""

    class Module(Model):
        def configure_callbacks(self) -> list[TrainPerf]:
            return [TrainPerf(report=False, meters=[Lines()], probes=[LineProbe()])]

    trainer(tmp_path, AutoTrainPerf()).fit(Module(), Loader(8, batch=BATCH))

    assert read(tmp_path / "trainperf").totals.readings["lines_of_batch"].value == 15
