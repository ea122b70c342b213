"""Changes are tried in a fit under a Trainer, and the fit ends as if none had been."""

import csv
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from support.fits import Loader, Model, read, trainer
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from trainperf.lightning.trial_loggers import ModuleLog

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch
from trainperf.core.phases import Tag
from trainperf.lightning import TrainPerf
from trainperf.trials import Trial
from trainperf.trials.builtin.free_loader import free_loader
from trainperf.trials.training import Training


def nothing() -> None:
    """A change that changes nothing."""


IDLE = Trial("idle", nothing, nothing)
BRIEF = 0.005
"""Minutes: least for one trial, which always has its eight pairs."""


class Learner(pl.LightningModule):
    """Depends on everything a trial might disturb: order, dropout, schedule, running statistics."""

    def __init__(self, *, interval: str = "step") -> None:
        super().__init__()
        self.interval = interval
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 1),
        )
        self.batch_ids: list[int] = []
        self.validated = 0
        self.means: list[float] = []

    def on_train_epoch_end(self) -> None:
        """Keep the epoch's mean of what was logged."""
        self.means.append(float(self.trainer.callback_metrics["loss_epoch"]))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The mean square of the output."""
        self.batch_ids.append(batch_idx)
        data = batch[0] if isinstance(batch, list | tuple) else batch
        loss: torch.Tensor = self.net(data).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log a loss."""
        self.validated += 1
        data = batch[0] if isinstance(batch, list | tuple) else batch
        self.log("val_loss", self.net(data).square().mean())

    def configure_optimizers(self) -> Any:
        """Adam, with a learning rate that changes all the time."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        return [optimizer], [{"scheduler": schedule, "interval": self.interval}]


def data(rows: int = 96) -> TensorDataset:
    """The same rows every time."""
    return TensorDataset(torch.randn(rows, 4, generator=torch.Generator().manual_seed(1)))


def test_what_the_module_logs_is_dropped_as_told_and_comes_back() -> None:
    """Whether it is logged by itself or in a dictionary."""
    model = pl.LightningModule()
    logged: list[str] = []
    model.log = lambda name, *_, **__: logged.append(name)  # type: ignore[assignment, method-assign]
    rare = ModuleLog(model)
    del model.__dict__["log"]

    rare.set_interval(3)
    for step in range(7):
        model.log(f"loss{step}", 0.0)
        rare.step_ended()
    rare.set_interval(0)
    model.log("never", 0.0)
    rare.set_interval(1)

    assert logged == ["loss0", "loss3", "loss6"]
    assert "log" not in model.__dict__


class Stream(IterableDataset[torch.Tensor]):
    """Rows of which nobody knows how many."""

    def __iter__(self) -> Any:
        return iter(data().tensors[0])


def loader(**options: Any) -> "DataLoader[Any]":
    """In another order every epoch."""
    return DataLoader(data(), batch_size=2, shuffle=True, **options)


def trained(
    tmp_path: Path, trials: list[Trial] | None, make: Callable[[], Any] = loader, **options: Any
) -> tuple[Learner, "pl.Trainer"]:
    """A fit from the same seed, with or without trials."""
    torch.manual_seed(7)
    model, batches = Learner(), make()
    perf = TrainPerf(trials=trials, trial_minutes=BRIEF, report=False, dirpath=str(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        if trials is not None:  # enough to go through all of a trial, and soon over
            patched.setattr("trainperf.trials.start.builtin_trials", lambda _: [])
            # On a busy machine steps would be unsteady to the end.
            patched.setattr("trainperf.trials.conductor.WARM_LOOKS", 2)
        training = trainer(tmp_path, perf, **{"max_epochs": 2, "log_every_n_steps": 1, **options})
        training.fit(model, batches, DataLoader(data(8), batch_size=2))
    return model, training


def results(run: Path) -> dict[str, TrialResult]:
    """What was tried, by name."""
    document = read_document(Trials, run)
    assert document is not None
    assert document.trying == ""
    return {trial.id: trial for trial in document.trials}


SAME: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate_grad_batches": 3},
    "validation amid the epoch": {"val_check_interval": 10},
    "a limit of steps": {"max_steps": 70, "max_epochs": -1},
    "a limit of batches": {"limit_train_batches": 30},
    "half precision": {"precision": "bf16-mixed"},
    "gradient clipping": {"gradient_clip_val": 0.1},
}


@pytest.mark.parametrize("name", SAME)
def test_a_fit_with_trials_ends_bit_by_bit_as_the_same_without(tmp_path: Path, name: str) -> None:
    """Weights, steps, epochs, batches, the schedule, and the epoch's mean of what was logged."""
    options = SAME[name]
    without, plain = trained(tmp_path / "a", None, **options)
    with_trials, tried = trained(tmp_path / "b", [IDLE], **options)

    assert results(tmp_path / "b" / "trainperf")["idle"].pairs >= 8
    for name_, tensor in without.state_dict().items():
        assert torch.equal(tensor, with_trials.state_dict()[name_]), name_
    assert (tried.global_step, tried.current_epoch) == (plain.global_step, plain.current_epoch)
    assert with_trials.batch_ids[-20:] == without.batch_ids[-20:]
    assert plain.lr_scheduler_configs == [] or (
        tried.lr_scheduler_configs[0].scheduler.state_dict()
        == plain.lr_scheduler_configs[0].scheduler.state_dict()
    )
    assert tried.callback_metrics == plain.callback_metrics
    assert with_trials.means == without.means
    assert with_trials.validated == without.validated
    groups = read(tmp_path / "b" / "trainperf").micro_batches()
    assert set(groups) == set(read(tmp_path / "a" / "trainperf").micro_batches())


@pytest.mark.parametrize("workers", [1])
def test_batches_that_workers_have_ready_are_kept_for_the_fit(tmp_path: Path, workers: int) -> None:
    """The loader goes on where it was."""

    def make() -> Any:
        return loader(num_workers=workers)

    without, _ = trained(tmp_path / "a", None, make)
    with_trials, _ = trained(tmp_path / "b", [IDLE], make)

    assert all(map(torch.equal, without.parameters(), with_trials.parameters()))


def test_a_stream_goes_on_and_its_epochs_end(tmp_path: Path) -> None:
    """Its batches are used up, which the document does not deny."""
    _, training = trained(tmp_path, [IDLE], lambda: DataLoader(Stream(), batch_size=2))

    document = read_document(Trials, tmp_path / "trainperf")
    assert document is not None
    assert "position" not in document.restored
    assert training.current_epoch == 2
    assert "val_loss" in training.callback_metrics


def test_a_loader_of_the_users_own_gives_each_epoch_its_number_of_batches(tmp_path: Path) -> None:
    """Trials have used some of them, and it is begun anew."""
    without, plain = trained(tmp_path / "a", None, lambda: Loader(20))
    with_trials, tried = trained(tmp_path / "b", [IDLE], lambda: Loader(20))

    assert tried.global_step == plain.global_step == 40
    assert with_trials.batch_ids[-20:] == without.batch_ids[-20:]
    assert all(map(torch.equal, without.parameters(), with_trials.parameters()))


def test_several_loaders_are_not_tried_in_a_fit_that_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their batches would be lost."""
    model = Model()
    perf = TrainPerf(trials=[IDLE], report=False)
    model.loss = lambda batch: model.layer(batch[0]).mean()  # type: ignore[method-assign]
    trainer(tmp_path, perf).fit(model, [Loader(3), Loader(3)])

    assert "nothing is tried: 2 loaders are combined to a batch" in caplog.text


def test_a_trial_that_cannot_be_made_is_failed_and_the_fit_goes_on(tmp_path: Path) -> None:
    """To the same weights."""

    def refuse() -> None:
        raise ValueError("not today")

    without, _ = trained(tmp_path / "a", None)
    with_trials, _ = trained(tmp_path / "b", [Trial("refused", refuse, nothing), IDLE])

    tried = results(tmp_path / "b" / "trainperf")
    assert tried["refused"].verdict == "failed"
    assert tried["refused"].reason == "ValueError: not today"
    assert tried["idle"].pairs
    assert all(map(torch.equal, without.parameters(), with_trials.parameters()))


def test_steps_with_a_change_are_tagged_and_others_are_steps_like_any(tmp_path: Path) -> None:
    """So that no statistic counts a change that is not there."""
    trained(tmp_path, [IDLE])

    ran = read(tmp_path / "trainperf")
    assert ran.totals is not None
    assert not ran.totals.faults
    tagged = ran.tagged(Tag.TRIAL)
    assert 0 < len(tagged) < len(ran.steps)


def saved_and_logged(root: Path, trials: list[Trial] | None) -> tuple[list[str], list[str]]:
    """Names of the checkpoints, and the steps in the log."""
    saver = ModelCheckpoint(root / "saved", every_n_train_steps=12, save_top_k=-1)
    perf = TrainPerf(trials=trials, trial_minutes=BRIEF, report=False, dirpath=str(root))
    torch.manual_seed(7)
    trainer(
        root,
        max_epochs=2,
        log_every_n_steps=4,
        callbacks=[perf, saver],
        logger=[TensorBoardLogger(root, "board", "0"), CSVLogger(root, "log", "0")],
        enable_checkpointing=True,
    ).fit(Learner(), loader(), DataLoader(data(8), batch_size=2))
    with (root / "log" / "0" / "metrics.csv").open() as file:
        steps = [row["step"] for row in csv.DictReader(file) if row["loss_step"]]
    return sorted(path.name for path in (root / "saved").iterdir()), steps


def test_nothing_of_a_trial_is_saved_or_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints and logs are those of a fit without, and the logs of the trials are removed."""
    monkeypatch.setattr("trainperf.trials.start.builtin_trials", lambda _: [])

    assert saved_and_logged(tmp_path / "a", None) == saved_and_logged(tmp_path / "b", [IDLE])
    run = tmp_path / "b" / "trainperf"
    assert results(run)["idle"].pairs
    assert not [path for path in run.iterdir() if path.is_dir()]


def test_a_fit_that_ends_amid_a_trial_has_its_change_unmade(tmp_path: Path) -> None:
    """And the Trainer has its own limits back."""
    state = {"on": False}

    class Stopped(Learner):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if state["on"]:
                raise KeyboardInterrupt
            return super().training_step(batch, batch_idx)

    change = Trial("change", lambda: state.update(on=True), lambda: state.update(on=False))
    perf = TrainPerf(trials=[change], trial_minutes=BRIEF, report=False, dirpath=str(tmp_path))
    training = trainer(tmp_path, perf, max_epochs=2)
    with pytest.raises(SystemExit):
        training.fit(Stopped(), loader(), DataLoader(data(8), batch_size=2))

    assert not state["on"]
    assert (training.max_epochs, training.limit_val_batches) == (2, 1.0)


def test_a_step_that_raises_under_a_change_ends_the_fit_with_the_weights_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The trial is named, and can be left out."""
    state = {"on": False}
    weights: list[torch.Tensor] = []

    class Fails(Learner):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if state["on"]:
                raise ArithmeticError("no such thing in this precision")
            return super().training_step(batch, batch_idx)

    def switch_on() -> None:
        state.update(on=True)
        weights[:] = [each.detach().clone() for each in model.parameters()]

    def fit(change: Trial) -> None:
        perf = TrainPerf(trials=[change], trial_minutes=BRIEF, report=False, dirpath=str(tmp_path))
        training = trainer(tmp_path, perf, max_epochs=1)
        training.fit(model, loader(), DataLoader(data(8), batch_size=2))

    model = Fails()
    change = Trial("change", switch_on, lambda: state.update(on=False), tolerance=None)
    with pytest.raises(ArithmeticError, match="no such thing"):
        fit(change)

    assert not state["on"]
    assert all(map(torch.equal, model.parameters(), weights))
    tried = results(tmp_path / "trainperf")["change"]
    assert (tried.verdict, tried.reason) == ("failed", "ArithmeticError in a step with it")
    assert "ArithmeticError came with change switched on for a trial" in caplog.text
    assert "trials=[cannot('change', 'it raises')]" in caplog.text


# -- what can be switched -------------------------------------------------------------------------


@dataclass
class Switched:
    """A fit in which a switch of the training under trial was turned on and off."""

    during: list[Any]
    otherwise: list[Any]


def switched(
    tmp_path: Path,
    switch: Callable[[Training], tuple[Callable[[], object], Callable[[], object]]],
    look: Callable[["pl.Trainer", Learner], Any],
    *callbacks: Callback,
    **options: Any,
) -> Switched:
    """What *look* returns in each training step, while the switch is on and otherwise."""
    seen = Switched([], [])
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
            (seen.during if state["on"] else seen.otherwise).append(look(self.trainer, self))
            return loss

    perf = TrainPerf(trials=[], trial_minutes=BRIEF, report=False, dirpath=str(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainperf.trials.start.builtin_trials", offered)
        trainer(tmp_path, perf, *callbacks, **options).fit(
            Looked(), loader(), DataLoader(data(8), batch_size=2)
        )
    assert len(seen.during) > 16
    assert len(seen.otherwise) > 16
    return seen


def test_autocast_is_that_of_the_trainer(tmp_path: Path) -> None:
    """The whole training step computes in it, and nothing does afterwards."""
    seen = switched(
        tmp_path,
        lambda training: (
            lambda: training.set_autocast(torch.bfloat16),
            lambda: training.set_autocast(None),
        ),
        lambda training, model: (
            torch.is_autocast_enabled("cpu"),
            type(training.precision_plugin).__name__,
        ),
    )

    assert set(seen.during) == {(True, "MixedPrecision")}
    assert set(seen.otherwise) == {(False, "Precision")}


@pytest.mark.parametrize(
    ("options", "half"),
    [({}, False), ({"precision": "bf16-mixed"}, True), ({"precision": "bf16-true"}, True)],
)
def test_a_training_in_half_precision_says_so(
    tmp_path: Path, options: dict[str, Any], *, half: bool
) -> None:
    """There autocast would bring nothing."""
    said: list[bool] = []

    def offered(training: Training) -> list[Trial]:
        said.append(training.computes_in_half)
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainperf.trials.start.builtin_trials", offered)
        perf = TrainPerf(trials=[], report=False)
        trainer(tmp_path, perf, **options).fit(Model(), Loader(2))

    assert said == [half]


def test_without_its_gradients_an_optimizer_updates_nothing(tmp_path: Path) -> None:
    """They are dropped after backward, which Lightning runs inside the update."""
    weights: list[torch.Tensor] = []

    def moved(training: "pl.Trainer", model: Learner) -> bool:
        weights.append(model.net[0].weight.detach().clone())
        return len(weights) > 1 and not torch.equal(weights[-1], weights[-2])

    seen = switched(
        tmp_path,
        lambda training: (
            lambda: training.mute_update(mute=True),
            lambda: training.mute_update(mute=False),
        ),
        moved,
    )

    # The first step of each turn follows an update of the other kind.
    assert sum(seen.during) <= 0.5 * len(seen.during)
    assert sum(seen.otherwise) >= 0.5 * len(seen.otherwise)


class Counting(Callback):
    """Counts batches."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_start(self, *hook: object) -> None:
        """Count."""
        self.batches += 1


def test_a_callback_that_is_silenced_hears_nothing(tmp_path: Path) -> None:
    """And hears all again afterwards."""
    mine = Counting()

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (mutable,) = training.callbacks()
        assert mutable.name == "Counting"
        return mutable.mute, mutable.unmute

    seen = switched(tmp_path, silence, lambda training, model: mine.batches, mine)

    assert set(seen.during) <= {*seen.otherwise, 0}
    assert len(set(seen.otherwise)) == len(seen.otherwise)


class HiddenBar(TQDMProgressBar):
    """As on every rank but the first."""

    def setup(self, *hook: Any, **options: Any) -> None:
        """Show nothing."""
        super().setup(*hook, **options)
        self.disable()


@pytest.mark.parametrize("shows", [True, False])
def test_a_progress_bar_that_is_silenced_stays_where_its_thread_looks_for_it(
    tmp_path: Path,
    shows: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    """Rich's is drawn by a thread, which asks the Trainer for it; a hidden one is not shown."""

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (mutable,) = training.callbacks()
        return mutable.mute, mutable.unmute

    def shown(training: "pl.Trainer", model: Learner) -> bool:
        bar = training.progress_bar_callback
        assert isinstance(bar, TQDMProgressBar)
        return bar.is_enabled

    bar = TQDMProgressBar() if shows else HiddenBar()
    seen = switched(tmp_path, silence, shown, bar, enable_progress_bar=True)

    assert set(seen.during) == {False}
    assert set(seen.otherwise) == {shows}


def test_a_logger_that_is_silenced_is_still_there_for_the_model(tmp_path: Path) -> None:
    """A model may log to it by itself."""

    def silence(training: Training) -> tuple[Callable[[], object], Callable[[], object]]:
        (mutable,) = training.loggers()
        assert mutable.name == "CSVLogger"
        return mutable.mute, mutable.unmute

    seen = switched(
        tmp_path,
        silence,
        lambda training, model: type(training.logger).__name__,
        logger=CSVLogger(tmp_path),
    )

    assert set(seen.during) == {"DummyLogger"}
    assert set(seen.otherwise) == {"CSVLogger"}


# -- what comes back ------------------------------------------------------------------------------


@pytest.mark.real_clock
def test_a_loader_that_sleeps_is_what_batches_from_memory_save(tmp_path: Path) -> None:
    """30 ms of sleep and 30 ms of work: twice as fast, within a tenth."""

    def sleeping(rows: list[Any]) -> torch.Tensor:
        time.sleep(0.030)
        return torch.stack([row[0] for row in rows])

    model = Model()
    model.in_forward = lambda: time.sleep(0.030)
    perf = TrainPerf(trials=[], trial_minutes=0.2, report=False, dirpath=str(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainperf.trials.start.builtin_trials", free_loader)
        batches = DataLoader(data(80), batch_size=2, collate_fn=sleeping)
        trainer(tmp_path, perf).fit(model, batches)

    ceiling = results(tmp_path / "trainperf")["free_loader"]
    assert ceiling.speedup == pytest.approx(2.0, rel=0.1)
    assert ceiling.verdict == "faster"


@pytest.mark.real_clock
def test_a_change_of_the_users_brings_what_it_leaves_out(tmp_path: Path) -> None:
    """30 of 40 ms: four times as fast, within a tenth."""
    model = Model()
    pause = {"s": 0.040}
    model.in_forward = lambda: time.sleep(pause["s"])
    change = Trial(
        "less_sleep",
        on=lambda: pause.update(s=0.010),
        off=lambda: pause.update(s=0.040),
        apply="sleep(0.010)",
    )
    perf = TrainPerf(trials=[change], trial_minutes=0.2, report=False, dirpath=str(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainperf.trials.start.builtin_trials", lambda _: [])
        trainer(tmp_path, perf).fit(model, Loader(40))

    tried = results(tmp_path / "trainperf")["less_sleep"]
    assert 3.0 < (tried.speedup or 0) < 4.2
    assert (tried.verdict, tried.apply) == ("faster", "sleep(0.010)")
    assert pause["s"] == 0.040


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": ["bf16"]}, r"trials=\['bf16'\]: not a Trial; try Trial\("),
        ({"trials": [IDLE, IDLE]}, "two are named 'idle'; give one another name"),
        ({"trials": [IDLE], "trial_minutes": 0}, "minutes=0: must be above 0; try 2"),
    ],
)
def test_what_cannot_be_tried_is_refused_where_it_is_written(
    options: dict[str, Any], message: str
) -> None:
    """With the value and what to pass instead."""
    with pytest.raises(ConfigError, match=message):
        TrainPerf(**options)


# -- a run that is started for its trials ---------------------------------------------------------

SCRIPT = """
import lightning.pytorch as pl, torch, warnings
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")
{setup}

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        data = batch["a"] if isinstance(batch, dict) else batch
        loss = self.layer(data[0]).square().mean()
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
    callbacks=[ModelCheckpoint(every_n_train_steps=5)], {options})
trainer.fit(Model(), {loaders})
print("after the fit")
trainer.save_checkpoint("final.ckpt")
"""


def started(
    tmp_path: Path, options: str = "", setup: str = "", loaders: str = "loader"
) -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """The script as `trainperf try` starts it, and the files that it left."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT.format(options=options, setup=setup, loaders=loaders))
    trials = TrialLaunch(minutes=0.03, only=("free_loader", "no_update"))
    launch = LaunchOptions(dirpath=str(out), trials=trials)
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=work,
        env=launch.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    left = [str(path.relative_to(work)) for path in work.rglob("*")]
    return ended, left


@pytest.mark.parametrize("options", ["", "logger=CSVLogger('logs')", "logger=False"])
def test_a_run_for_trials_ends_well_and_leaves_nothing(tmp_path: Path, options: str) -> None:
    """Neither checkpoint nor log, and nothing after the fit is run."""
    setup = "from lightning.pytorch.loggers import CSVLogger"
    ended, left = started(tmp_path, options, setup)

    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "after the fit" not in ended.stdout
    assert left == ["train.py"]
    tried = results(tmp_path / "out" / "trainperf")
    assert tried["free_loader"].pairs
    assert "no_update" in tried


def test_a_run_for_trials_ends_well_where_its_batches_cannot_be_taken_over(tmp_path: Path) -> None:
    """Its fit is ended as one that was stopped early."""
    ended, left = started(tmp_path, loaders="{'a': loader, 'b': loader}")

    assert ended.returncode == 0, ended.stderr
    assert "after the fit" not in ended.stdout
    assert left == ["train.py"]
