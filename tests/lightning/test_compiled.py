"""`compile.json` of real fits: what was compiled in them, and nothing else."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from support.fits import QUIET, Loader, Model

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.compilation import Compilation
from trainperf.lightning import TrainPerf


pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_compiler")]


class Growing(Model):
    """Rows that become more in the third and the fifth batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The mean of the compiled layer's output."""
        return self.layer(torch.ones(2 + batch_idx // 2, 4)).mean()


def trained(path: Path, model: pl.LightningModule, batches: int = 6) -> Path:
    """The run directory of a fit."""
    perf = TrainPerf(dirpath=str(path), report=False)
    pl.Trainer(**QUIET, callbacks=[perf]).fit(model, Loader(batches))
    return path / "trainperf"


def test_a_compiled_part_of_a_module_is_accounted_for(tmp_path: Path) -> None:
    """Three lengths: compiled once, and again for two of them."""
    model = Growing()
    model.layer = torch.compile(model.layer, backend="eager", dynamic=False)

    found = read_document(Compilation, trained(tmp_path, model))

    assert found.graphs == 3
    assert [one.step for one in found.recompiled] == [2, 4]
    assert [one.step for one in found.steps] == [0, 2, 4]
    assert found.compile_s is not None


def test_a_whole_compiled_module_is_accounted_for(tmp_path: Path) -> None:
    """Lightning runs its training step through the compiler."""
    model = torch.compile(Growing(), backend="eager", dynamic=False)

    found = read_document(Compilation, trained(tmp_path, model))  # type: ignore[arg-type]

    assert found.graphs >= 3
    assert {one.step for one in found.recompiled} >= {2, 4}


def test_a_fit_that_compiles_nothing_has_no_such_file(tmp_path: Path) -> None:
    """Also where something was compiled before it."""
    torch.compile(torch.sin, backend="eager")(torch.ones(2))

    assert read_document(Compilation, trained(tmp_path, Model())) is None
