"""A user's own meters, probes and sinks under Lightning."""

import json
from pathlib import Path

import torch
from lightning.pytorch.loggers import CSVLogger
from support.fits import Loader, Model, read, trainer
from support.own import Keeper, LineProbe, Lines

from trainperf.lightning import TrainPerf
from trainperf.lightning.callback import AutoTrainPerf


BATCH = {"x": torch.ones(2, 4), "lines": 15}


def test_they_reach_the_logger_the_record_file_the_sink_and_the_summary(tmp_path: Path) -> None:
    """The planted number of lines, everywhere."""
    keeper = Keeper()
    perf = TrainPerf(
        report=False, meters=[Lines()], probes=[LineProbe()], sinks=[keeper], dirpath=str(tmp_path)
    )
    logger = CSVLogger(tmp_path)
    trainer(tmp_path, perf, logger=logger, log_every_n_steps=5).fit(
        Model(), Loader(20, batch=BATCH)
    )

    ran = read(tmp_path / "trainperf")
    assert ran.fact("lines") == [15] * 20
    assert keeper.shown["lines_of_batch"].value == 15
    assert ran.totals.readings["lines_of_batch"].value == 15
    found = json.loads((tmp_path / "trainperf/summary.json").read_text(encoding="utf-8"))
    assert found["readings"]["lines_of_batch"]["value"] == 15
    (metrics,) = tmp_path.rglob("metrics.csv")
    assert "trainperf/lines_of_batch" in metrics.read_text(encoding="utf-8").splitlines()[0]


def test_the_scripts_own_callback_leads_that_of_trainperf_run(tmp_path: Path) -> None:
    """Wherever it comes from: those of the module are attached after all others."""

    class Module(Model):
        def configure_callbacks(self) -> list[TrainPerf]:
            return [TrainPerf(report=False, meters=[Lines()], probes=[LineProbe()])]

    training = trainer(tmp_path, AutoTrainPerf())
    training.fit(Module(), Loader(8, batch=BATCH))

    ran = read(tmp_path / "trainperf")
    assert ran.totals.readings["lines_of_batch"].value == 15
