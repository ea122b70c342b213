"""Changes are tried under `trainperf try` in a fit under a Trainer, and nothing of it is kept."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.tuner import Tuner
from support.fits import Loader, Model, awake, read, trainer
from support.trial_launch import launch_trials, trial_results
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch, TrialsOver
from trainperf.core.phases import Tag
from trainperf.lightning import TrainPerf
from trainperf.lightning.trials import LightningTraining
from trainperf.recording.recorder import Recorder
from trainperf.testing import FakeClock
from trainperf.trials import Trial
from trainperf.trials.builtin.free_loader import free_loader
from trainperf.trials.training import Training


IDLE = Trial("idle", awake, awake)
BRIEF = 0.005
"""Minutes: least for one trial, which always has its eight pairs."""


class Learner(pl.LightningModule):
    """Depends on everything a trial might disturb: dropout, running statistics, a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 1),
        )
        self.rates: set[float] = set()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The mean square of the output; the schedule is at hand, as people log it."""
        self.rates.update(self.lr_schedulers().get_last_lr())  # type: ignore[union-attr] # just one
        loss: torch.Tensor = self.net(rows_of(batch)).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log a loss."""
        self.log("val_loss", self.net(rows_of(batch)).square().mean())

    def configure_optimizers(self) -> Any:
        """Adam, with a learning rate that changes until a last step, and refuses to go on."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=60)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def rows_of(batch: Any) -> torch.Tensor:
    """The tensor in a batch of either kind of loader."""
    return batch[0] if isinstance(batch, list | tuple) else batch


def data(rows: int = 96) -> TensorDataset:
    """The same rows every time."""
    return TensorDataset(torch.randn(rows, 4, generator=torch.Generator().manual_seed(1)))


class Stream(IterableDataset[torch.Tensor]):
    """Rows of which nobody knows how many."""

    def __iter__(self) -> Any:
        return iter(data().tensors[0])


def validation_of(model: "pl.LightningModule") -> "DataLoader[Any] | None":
    """Four batches, if it has a use for them."""
    return DataLoader(data(8), batch_size=2) if isinstance(model, Learner) else None


def loader(**options: Any) -> "DataLoader[Any]":
    """In another order every epoch."""
    return DataLoader(data(), batch_size=2, shuffle=True, **options)


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A process as `trainperf try` starts it: its fits, and what came of them."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def directory(self) -> Path:
        """Of the run."""
        return self.root / "tried" / "trainperf"

    def results(self) -> dict[str, TrialResult]:
        """What was tried, by name."""
        return trial_results(self.root / "tried")

    def launch(
        self, offered: Callable[[Training], list[Trial]] | None = None, minutes: float = BRIEF
    ) -> None:
        """Have the next fits try what is *offered*, by default only the user's own."""
        launch_trials(self.monkeypatch, self.root / "tried", minutes=minutes)
        self.monkeypatch.setattr("trainperf.trials.start.builtin_trials", offered or (lambda _: []))

    def fit(
        self,
        model: "pl.LightningModule",
        batches: Any,
        *callbacks: Callback,
        trials: tuple[Trial, ...] = (),
        **options: Any,
    ) -> "pl.Trainer":
        """The Trainer of a fit that ends with its trials, without a fault of ours."""
        torch.manual_seed(7)
        perf = TrainPerf(trials=trials, report=False)
        options = {"max_epochs": 2, "log_every_n_steps": 1, **options}
        training = trainer(self.root, perf, *callbacks, **options)
        with pytest.raises(TrialsOver):
            training.fit(model, batches, validation_of(model))
        assert not read(self.directory).totals.faults
        return training


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialRun:
    """Its fits try the user's own changes."""
    process = TrialRun(tmp_path, monkeypatch)
    process.launch()
    return process


# -- how a fit is tried ---------------------------------------------------------------------------

FITS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate_grad_batches": 3},
    "validation amid the epoch": {"val_check_interval": 10},
    "a limit of steps": {"max_steps": 12, "max_epochs": -1},
    "a limit of batches": {"limit_train_batches": 6},
}


@pytest.mark.parametrize("name", FITS)
def test_what_changes_nothing_has_the_same_loss_to_the_last_bit(
    process: TrialRun, name: str
) -> None:
    """On the same batches from the same state, past every limit; no schedule comes between.

    Steps with a change are tagged.
    """
    model = Learner()
    process.fit(model, loader(), trials=(IDLE,), **FITS[name])

    idle = process.results()["idle"]
    assert idle.pairs >= 8
    assert idle.loss_before is not None
    assert idle.loss_before == idle.loss_after
    assert len(model.rates) == 1
    ran = read(process.directory)
    assert 0 < len(ran.tagged(Tag.TRIAL)) < len(ran.steps)


@pytest.mark.parametrize(
    "make",
    [
        lambda: loader(num_workers=1),
        lambda: DataLoader(Stream(), batch_size=2),
        lambda: Loader(20),
    ],
    ids=["workers", "a stream", "no DataLoader"],
)
def test_batches_of_any_loader_are_taken_over_and_never_end(
    process: TrialRun, make: Callable[[], Any]
) -> None:
    """It is begun anew in place of the epoch's end."""
    training = process.fit(Learner(), make(), trials=(IDLE,))

    idle = process.results()["idle"]
    assert idle.loss_before is not None
    assert idle.loss_before == idle.loss_after
    assert training.current_epoch < 2


def test_several_loaders_cannot_be_taken_over(process: TrialRun) -> None:
    """What leaves batches alone is tried all the same."""
    process.launch(lambda training: [IDLE, *free_loader(training)])
    model = Model()
    model.loss = lambda batch: model.layer(batch[0]).mean()  # type: ignore[method-assign]
    process.fit(model, [Loader(3), Loader(3)])

    tried = process.results()
    assert tried["idle"].pairs
    assert tried["free_loader"].reason == "its batches cannot be taken over"


# -- what is kept of it ---------------------------------------------------------------------------


def test_nothing_of_it_is_saved_or_logged_or_left_in_a_temporary_folder(
    process: TrialRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the user asks for it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    root = tmp_path / "kept"
    process.fit(
        Learner(),
        loader(),
        ModelCheckpoint(root / "saved", every_n_train_steps=3, save_top_k=-1),
        trials=(IDLE,),
        logger=[TensorBoardLogger(root, "board", "0"), CSVLogger(root, "log", "0")],
        enable_checkpointing=True,
    )

    assert process.results()["idle"].pairs
    assert [path for path in root.rglob("*") if path.is_file()] == []
    assert list(temporary.iterdir()) == []
    assert [path for path in process.directory.iterdir() if path.is_dir()] == []


def test_nothing_is_left_of_a_fit_that_raises(
    process: TrialRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first step, too."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    class Unready(Model):
        def on_fit_start(self) -> None:
            raise ArithmeticError

    training = trainer(tmp_path, TrainPerf(report=False), logger=TensorBoardLogger(tmp_path / "b"))
    with pytest.raises(ArithmeticError):
        training.fit(Unready(), Loader(4))

    assert list(temporary.iterdir()) == []
    assert [path for path in (tmp_path / "b").rglob("*") if path.is_file()] == []


def test_a_learning_rate_is_found_before_anything_is_tried(process: TrialRun) -> None:
    """A tuner's fit ends before its first step, and puts back what it has saved itself."""

    class Tunable(Model):
        lr = 0.01

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.lr)

    model = Tunable()
    training = trainer(process.root, TrainPerf(trials=[IDLE], report=False))
    Tuner(training).lr_find(model, Loader(20), num_training=8)
    with pytest.raises(TrialsOver):
        training.fit(model, Loader(20))

    assert process.results()["idle"].pairs


def test_what_the_module_logs_is_dropped_as_told_and_comes_back() -> None:
    """Whether it is logged by itself or in a dictionary."""
    logged: list[str] = []

    class Logs(pl.LightningModule):
        def log(self, name: str, *_: Any, **__: Any) -> None:
            logged.append(name)

    model, rare = Logs(), LightningTraining.__new__(LightningTraining)
    steps = Recorder(FakeClock())
    rare.module, rare._fit = model, SimpleNamespace(recorder=steps)  # type: ignore[assignment]

    rare.set_values_interval(3)
    for step in range(7):
        steps.index = step
        model.log(f"loss{step}", 0.0)
    rare.set_values_interval(0)
    model.log("never", 0.0)
    rare.set_values_interval(1)

    assert logged == ["loss0", "loss3", "loss6"]
    assert "log" not in model.__dict__


# -- what can be switched -------------------------------------------------------------------------


@dataclass
class Switched:
    """A fit in which a switch of the training under trial was turned on and off."""

    during: list[Any]
    otherwise: list[Any]


def switched(
    process: TrialRun,
    switch: Callable[[Training], tuple[Callable[[], object], Callable[[], object]]],
    look: Callable[["pl.Trainer", Learner], Any],
    *callbacks: Callback,
    **options: Any,
) -> Switched:
    """What *look* returns in each training step, while the switch is on and otherwise."""
    looks = Switched([], [])
    state = {"on": False}

    def offered(training: Training) -> list[Trial]:
        on, off = switch(training)

        def begin() -> None:
            on()
            state["on"] = True

        def end() -> None:
            off()
            state["on"] = False

        return [Trial("switch", begin, end, tolerance=None)]

    class Looked(Learner):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            (looks.during if state["on"] else looks.otherwise).append(look(self.trainer, self))
            return loss

    process.launch(offered)
    process.fit(Looked(), loader(), *callbacks, **options)
    assert len(looks.during) > 16
    assert len(looks.otherwise) > 16
    return looks


def test_autocast_is_that_of_the_trainer(process: TrialRun) -> None:
    """The whole training step computes in it, and nothing does afterwards."""
    looks = switched(
        process,
        lambda training: (
            lambda: training.set_autocast(torch.bfloat16),
            lambda: training.set_autocast(None),
        ),
        lambda training, model: (
            torch.is_autocast_enabled("cpu"),
            type(training.precision_plugin).__name__,
        ),
    )

    assert set(looks.during) == {(True, "MixedPrecision")}
    assert set(looks.otherwise) == {(False, "Precision")}


@pytest.mark.parametrize(
    ("options", "half"),
    [({}, False), ({"precision": "bf16-mixed"}, True), ({"precision": "bf16-true"}, True)],
)
def test_a_training_in_half_precision_says_so(
    process: TrialRun, options: dict[str, Any], *, half: bool
) -> None:
    """There autocast would bring nothing."""
    halves: list[bool] = []

    def offered(training: Training) -> list[Trial]:
        halves.append(training.computes_in_half)
        return []

    process.launch(offered)
    process.fit(Model(), Loader(2), **options)

    assert halves == [half]


def test_without_its_gradients_an_optimizer_updates_nothing(process: TrialRun) -> None:
    """They are dropped after backward, which Lightning runs inside the update."""
    weights: list[torch.Tensor] = []

    def moved(training: "pl.Trainer", model: Learner) -> bool:
        weights.append(model.net[0].weight.detach().clone())
        return len(weights) > 1 and not torch.equal(weights[-1], weights[-2])

    looks = switched(
        process,
        lambda training: (
            lambda: training.mute_update(mute=True),
            lambda: training.mute_update(mute=False),
        ),
        moved,
    )

    # The first step of each turn follows an update of the other kind.
    assert sum(looks.during) <= 0.5 * len(looks.during)
    assert sum(looks.otherwise) >= 0.5 * len(looks.otherwise)


class Counting(Callback):
    """Counts batches."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_start(self, *hook: object) -> None:
        """Count."""
        self.batches += 1


def test_a_callback_that_is_silenced_hears_nothing(process: TrialRun) -> None:
    """And hears all again afterwards."""
    mine = Counting()

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (trial,) = training.callbacks
        assert trial.id == "Counting"
        return trial.on, trial.off

    looks = switched(process, silence, lambda training, model: mine.batches, mine)

    assert set(looks.during) <= {*looks.otherwise, 0}
    assert len(set(looks.otherwise)) == len(looks.otherwise)


class HiddenBar(TQDMProgressBar):
    """As on every rank but the first."""

    def setup(self, *hook: Any, **options: Any) -> None:
        """Show nothing."""
        super().setup(*hook, **options)
        self.disable()


@pytest.mark.parametrize("shows", [True, False])
def test_a_progress_bar_that_is_silenced_stays_where_its_thread_looks_for_it(
    process: TrialRun,
    shows: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    """Rich's is drawn by a thread, which asks the Trainer for it; a hidden one is not shown."""

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (trial,) = training.callbacks
        return trial.on, trial.off

    def shown(training: "pl.Trainer", model: Learner) -> bool:
        return training.progress_bar_callback.is_enabled

    bar = TQDMProgressBar() if shows else HiddenBar()
    looks = switched(process, silence, shown, bar, enable_progress_bar=True)

    assert set(looks.during) == {False}
    assert set(looks.otherwise) == {shows}


def test_a_logger_that_is_silenced_is_still_there_for_the_model(process: TrialRun) -> None:
    """A model may log to it by itself."""

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (trial,) = training.loggers
        assert trial.id == "CSVLogger"
        return trial.on, trial.off

    looks = switched(
        process,
        silence,
        lambda training, model: type(training.logger).__name__,
        logger=CSVLogger(process.root),
    )

    assert set(looks.during) == {"DummyLogger"}
    assert set(looks.otherwise) == {"CSVLogger"}


# -- a run that is started for its trials ---------------------------------------------------------

SCRIPT = """
import lightning.pytorch as pl, torch, warnings
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        self.logger and self.logger.experiment
        return loss
    def on_train_batch_end(self, *hook):
        if self.trainer.global_step % 10 == 0:
            self.trainer.save_checkpoint("mine.ckpt")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

loader = DataLoader(TensorDataset(torch.ones(32, 4)), batch_size=2)
trainer = pl.Trainer(max_epochs=3, min_epochs=3, accelerator="cpu", log_every_n_steps=1,
    callbacks=[ModelCheckpoint(every_n_train_steps=5)])
trainer.fit(Model(), loader)
print("after the fit")
trainer.save_checkpoint("final.ckpt")
"""


@pytest.mark.slow
def test_a_run_for_trials_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    """Neither checkpoint nor log, and nothing after the fit is run."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    trials = TrialLaunch(minutes=0.01, only=("free_loader", "no_update"))
    launch = LaunchOptions(dirpath=str(out), trials=trials)
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=work,
        env=launch.environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "after the fit" not in ended.stdout
    assert [path.name for path in work.rglob("*")] == ["train.py"]
    tried = trial_results(out)
    assert tried["free_loader"].pairs
    assert "no_update" in tried
