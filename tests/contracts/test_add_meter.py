"""A meter or a sink is one file and one line: then it is in every report, live and later."""

import json

import pytest
from support.extended import ExtendedPackage


METER = '''"""A meter that a contributor adds."""

from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import Meter, Scope


class Planted(Meter):
    """Seventeen, whatever the steps were: the planted definition."""

    name = "planted_s"
    unit = "s"
    title = "planted time"
    scope = Scope.ALL

    def observe(self, block: StepBlock) -> Ratio | None:
        """Seventeen seconds a step."""
        return Ratio(17.0 * len(block), float(len(block)), len(block))


METERS = (Planted(),)
'''

SINK = '''"""A sink that a contributor adds."""

from collections.abc import Mapping

from trainperf.meters.fold import Reading
from trainperf.recording.sinks.base import Outputs, Sink


def sink_for(outputs: Outputs) -> Sink | None:
    """One for every fit with a run directory."""
    return None if outputs.run is None else Planted(outputs)


class Planted(Sink):
    """Writes one file."""

    name = "planted"

    def __init__(self, outputs: Outputs) -> None:
        self._run = outputs.run

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """The planted reading of the planted meter."""
        (self._run / "planted.txt").write_text(str(readings["planted_s"].value))
'''

SHOW = """
import contextlib, io, json, sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger

from trainperf.commands import main
from trainperf.lightning import StepTimeMonitor, TrainPerf
from trainperf.tensorboard.data import Store, View

from scripts.docs.tables import TABLES


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


folder = Path(sys.argv[1])
shown = {}
for name, callback in (("all", TrainPerf(report=False)), ("narrow", StepTimeMonitor())):
    logger = CSVLogger(folder / name)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=logger, callbacks=[callback], log_every_n_steps=5,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(40, 4), batch_size=2))
    (metrics,) = (folder / name).rglob("metrics.csv")
    shown[f"logger, {name}"] = metrics.read_text().splitlines()[0]
(run,) = (folder / "all").rglob("trainperf")
for form in ("text", "markdown", "html", "json"):
    sys.argv = ["trainperf", "report", str(run), "--format", form]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main() == 0
    shown[form] = out.getvalue()
store = Store([folder / "all"], lambda: 1_000_000_000.0)
shown["tab"] = store.run(run.relative_to(folder / "all").as_posix(), View()).decode()
shown["docs"] = TABLES["readings"]()
shown["sink"] = (run / "planted.txt").read_text()
print(json.dumps(shown))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All that shows readings, by a package with one meter and one sink more."""
    folder = tmp_path_factory.mktemp("checkout")
    package = ExtendedPackage.copied_to(folder)
    package.add_file("meters/planted.py", METER)
    package.add_line("meters/__init__.py", '"planted",', after='"overhead",')
    package.add_file("recording/sinks/planted.py", SINK)
    package.add_line("recording/sinks/__init__.py", '"planted",', after='"loggers",')
    (folder / "fits").mkdir()
    shown: dict[str, str] = json.loads(package.run(SHOW, folder / "fits"))
    return shown


@pytest.mark.parametrize("place", ["logger, all", "logger, narrow"])
def test_the_meter_is_logged_while_the_fit_goes_on(shown: dict[str, str], place: str) -> None:
    """Under its tag, by every callback that measures; no list had to be told of it."""
    assert "trainperf/planted_s" in shown[place]


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "tab"])
def test_the_reading_is_in_every_report(shown: dict[str, str], form: str) -> None:
    """With its value, which numbers the name never holds."""
    assert "planted" in shown[form]
    assert "17" in shown[form]


def test_the_definition_is_in_the_docs(shown: dict[str, str]) -> None:
    """Generated from the docstring."""
    assert "Seventeen, whatever the steps were: the planted definition." in shown["docs"]


def test_the_sink_got_the_readings(shown: dict[str, str]) -> None:
    """In a fit that did not name it."""
    assert shown["sink"] == "17.0"
