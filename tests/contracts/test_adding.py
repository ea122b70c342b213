"""A meter, detector, check or command is one file and one line: then all places have it."""

import json
from pathlib import Path

import pytest
from support.cases import CASES
from support.extended import ROOT, ExtendedPackage
from support.runs import make_run_dir

from trainperf.analysis.doctor import CHECKS


METER = '''"""A meter that a contributor adds."""

from trainperf.core.stats.reductions import Ratio
from trainperf.core.steps.block import StepBlock
from trainperf.meters.base import MeterEntry, Scope


def _seventeen(block: StepBlock) -> Ratio:
    """Seventeen seconds a step."""
    return Ratio(17.0 * len(block), float(len(block)), len(block))


METERS = (
    MeterEntry(
        name="planted_s",
        unit="s",
        about="Seventeen, whatever the steps were: the planted definition.",
        title="planted time",
        scope=Scope.ALL,
        statistic=_seventeen,
    ),
)
'''

DETECTOR = '''"""A detector that a contributor adds."""

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts


LIMIT = 0.0


def planted(account: StepAccount, facts: Facts) -> Cause | None:
    """Every run deserves this planted diagnosis.

    Wrong where: nothing was planted.
    To confirm: dig.
    """
    if facts.run.steps <= LIMIT:
        return None
    return Cause(
        id="planted",
        title="nine tenths of the step are planted",
        evidence=("17 roots were counted",),
        changes=(Use(change="compile_step"),),
        claim=Claim(removes_s=0.9 * account.step_s),
        where="garden.py:3",
    )
'''

CHECK = (
    'Check(id="planted_check", about="Nothing is planted in the step.\\n\\nFails always.", '
    'looks=[answer("fail", "{facts.run.steps} roots", action="use the spade twice")]),'
)

COMMAND = '''"""`trainperf hello NAME`: a greeting."""

import argparse

from trainperf.commands.cli import Command, argument


def _run(given: argparse.Namespace) -> str:
    return f"hello {given.name}\\n"


COMMAND = Command(
    name="hello",
    about="Greet somebody.",
    arguments=(argument("name", metavar="NAME", help="whom to greet"),),
    run=_run,
)
'''

SHOW = """
import contextlib, io, json, sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger

from contracts import test_reading_names
from scripts.render_docs import main as render
from trainperf.commands import main
from trainperf.lightning import StepTimeMonitor, TrainPerf
from trainperf.tensorboard.data import Store, View


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def printed(*arguments, call=main):
    sys.argv = ["trainperf", *map(str, arguments)]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        assert call() == 0
    return out.getvalue()


def tab(run):
    store = Store([run.parents[1]], lambda: 1_000_000_000.0)
    return store.run(run.relative_to(run.parents[1]).as_posix(), View()).decode()


folder, written = map(Path, sys.argv[1:])
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
(recorded,) = (folder / "all").rglob("trainperf")
for name, run in (("recorded", recorded), ("written", written)):
    for form in ("text", "markdown", "html", "json"):
        shown[f"{name} {form}"] = printed("report", run, "--format", form)
    shown[f"{name} tab"] = tab(run)
for form in ("text", "markdown", "json"):
    shown[f"doctor {form}"] = printed("doctor", written, "--format", form)
for arguments in ("--help", "hello --help", "hello reader"):
    shown[arguments] = printed(*arguments.split())
printed("--out", folder / "docs", call=render)
for page in ("readings", "findings", "checks", "cli"):
    shown[f"{page}.md"] = (folder / "docs" / "reference" / f"{page}.md").read_text()
test_reading_names.test_every_constant_is_a_reading()
shown["names"] = " ".join(test_reading_names.READINGS)
print(json.dumps(shown))
"""

ONE_COMMAND = "import sys; from trainperf.commands import main; main(); print(*sys.modules)"

FORMS = ("text", "markdown", "html", "json", "tab")

PLACES: dict[str, tuple[str, ...]] = {
    # Under its tag, by every callback that measures; no list had to be told of it.
    **dict.fromkeys(("logger, all", "logger, narrow"), ("trainperf/planted_s",)),
    # With its value, which numbers the name never holds.
    **{f"recorded {form}": ("planted", "17") for form in FORMS},
    # What to do first, and where; nothing else had to be told of the detector.
    **{f"written {form}": ("torch.compile(model", "garden.py:3") for form in FORMS},
    # With its promise, its evidence and what to do.
    **{
        f"doctor {form}": ("Nothing is planted in the step", "use the spade twice")
        for form in ("text", "markdown", "json")
    },
    "--help": ("  hello       Greet somebody.\n",),
    "hello --help": ("  NAME        whom to greet\n",),
    "hello reader": ("hello reader\n",),
}
"""What is shown where."""

ROWS = {
    "readings.md": ("| `planted_s` | s |", "the planted definition."),
    "findings.md": ("| `planted` | Every run deserves this planted diagnosis. ",),
    "checks.md": ("| `planted_check` | Nothing is planted in the step | Fails always. |",),
    "cli.md": ("## trainperf hello",),
}
"""Of the generated pages of the reference."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ExtendedPackage:
    """A package with one of each more."""
    package = ExtendedPackage.copied_to(tmp_path_factory.mktemp("checkout"))
    package.add_file("meters/planted.py", METER)
    package.add_line("meters/__init__.py", '"planted",', after='"overhead",')
    package.add_file("analysis/diagnosis/detectors/planted.py", DETECTOR)
    package.add_line(
        "analysis/diagnosis/__init__.py", '"planted:planted",', after='"host:callbacks",'
    )
    package.add_line("analysis/doctor/checks.py", CHECK, after="CHECKS: tuple[Check, ...] = (")
    package.add_file("commands/hello.py", COMMAND)
    package.add_line("commands/__init__.py", '"hello",', after='"merge",')
    return package


@pytest.fixture(scope="module")
def shown(package: ExtendedPackage) -> dict[str, str]:
    """All that it shows, of a fit that it records and of a run that was written."""
    fits = package.folder / "fits"
    fits.mkdir()
    run = make_run_dir(
        package.folder / "runs" / "first" / "trainperf", CASES["loader_bound"]().ranks
    )
    return json.loads(package.run(SHOW, fits, run))


@pytest.mark.parametrize("place", PLACES)
def test_what_was_added_is_shown(place: str, shown: dict[str, str]) -> None:
    """As if it had always been there."""
    text = shown[place].replace("\\", "")

    assert [words for words in PLACES[place] if words not in text] == []


@pytest.mark.parametrize("page", ROWS)
def test_what_was_added_has_its_row_in_the_reference(page: str, shown: dict[str, str]) -> None:
    """The page is generated from the family; there was no such row before."""
    before = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")

    assert [row for row in ROWS[page] if row not in shown[page] or row in before] == []


def test_a_check_is_counted(shown: dict[str, str]) -> None:
    """No number of checks is typed anywhere."""
    assert f"of {len(CHECKS) + 1} checks" in shown["doctor text"]
    assert len(json.loads(shown["doctor json"])["checks"]) == len(CHECKS) + 1


def test_only_the_command_that_runs_is_loaded(package: ExtendedPackage, tmp_path: Path) -> None:
    """Others may need what is slow to import."""
    loaded = package.run(ONE_COMMAND, "hello", tmp_path).split()

    assert [name for name in loaded if name.startswith("trainperf.commands.")] == [
        "trainperf.commands.cli",
        "trainperf.commands.hello",
    ]


def test_no_list_of_names_had_to_be_told(shown: dict[str, str]) -> None:
    """The guard of the names passes with a meter that has no constant: nobody looks it up."""
    assert "planted_s" in shown["names"].split()
