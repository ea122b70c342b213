"""A configuration file is enough: `class_path: trainperf.lightning.TrainPerf`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from support.fits import Loader, Model, read

from trainperf.lightning import DataWaitMonitor, TrainPerf


CONFIG = """
seed_everything: 7
trainer:
  accelerator: cpu
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  default_root_dir: {root}
  callbacks:
    - class_path: trainperf.lightning.TrainPerf
      init_args:
        log_every_n_steps: 7
        report: false
    - class_path: trainperf.lightning.DataWaitMonitor
"""


class Configured(Model):
    """A model that brings its data along, as a configured one does."""

    def __init__(self, batches: int = 4) -> None:
        super().__init__()
        self.batches = batches

    def train_dataloader(self) -> Any:
        """Ready-made batches."""
        return Loader(
            self.batches, batch={"x": torch.ones(2, 4), "attention_mask": torch.ones(2, 3)}
        )


def test_a_lightning_cli_run_from_yaml_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options of the file; the run knows its numbers."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.argv", ["train.py", "fit", "--config", str(config), "--model.batches", "5"]
    )
    cli = LightningCLI(Configured, save_config_callback=None)
    perf, monitor = (c for c in cli.trainer.callbacks if isinstance(c, TrainPerf | DataWaitMonitor))
    assert isinstance(monitor, DataWaitMonitor)
    assert perf.log_every_n_steps == 7
    ran = read(tmp_path / "root" / "trainperf")
    assert ran.micro_batches() == [1] * 5
    assert ran.fact("tokens_effective") == [6] * 5
    assert ran.info.config["model"] == "Configured"
    assert ran.info.config["seed"] == 7
