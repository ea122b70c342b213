"""Workers of Ray Train: where their run goes, whose it is, and what a restart leaves."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.loop import LoopMonitor
from trainperf.recording.ray_storage import ray_storage


EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_digits.py"

QUIETLY = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",  # else it leaves a token in the user's home
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # on a busy machine its workers would never come to their turn
}

FAILS_ONCE = """
import sys
from pathlib import Path
import lightning.pytorch as pl
import psutil, ray, torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer
from ray.train.torch import TorchTrainer
from trainperf.lightning import TrainPerf

place = Path(sys.argv[1])


class Linear(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, number):
        if self.global_rank == 1 and number == 30 and not (place / "restarted").exists():
            (place / "restarted").touch()
            raise ValueError("the worker fails")
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train():
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[TrainPerf()],
        max_epochs=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    loader = torch.utils.data.DataLoader(torch.ones(480, 8), batch_size=4)
    prepare_trainer(trainer).fit(Linear(), loader)


ray.init(num_cpus=2, include_dashboard=False)
TorchTrainer(
    train,
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=RunConfig(
        storage_path=str(place), name="linear", failure_config=FailureConfig(max_failures=1)
    ),
).fit()
ray.shutdown()
_, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=30)
assert not left, left
"""
"""Two workers with one line of ours, of which the second fails at its first attempt."""


def context(system: str) -> Callable[[], object]:
    """That of a worker whose storage is such a file system."""
    storage = SimpleNamespace(
        storage_filesystem=SimpleNamespace(type_name=system), experiment_fs_path="bucket/digits"
    )
    return lambda: SimpleNamespace(get_storage=lambda: storage)


def no_worker() -> object:
    """What a driver gets."""
    raise RuntimeError("cannot be used outside of a Ray Train training function")


@pytest.mark.parametrize(
    ("get_context", "place"),
    [
        (context("local"), "bucket/digits"),
        (context("s3"), "s3://bucket/digits"),
        (context("py::fsspec+mine"), None),
        (lambda: SimpleNamespace(get_storage=lambda: None), None),
        (no_worker, None),
    ],
)
def test_the_storage_is_a_path_or_a_url(
    get_context: Callable[[], object], place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it is left to the framework, in a driver too."""
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=get_context))

    assert ray_storage() == place


def test_what_the_user_has_said_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage is only a default."""
    monkeypatch.chdir(tmp_path)
    storage = SimpleNamespace(
        storage_filesystem=SimpleNamespace(type_name="local"),
        experiment_fs_path=str(tmp_path / "storage"),
    )
    worker = SimpleNamespace(get_storage=lambda: storage)
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=lambda: worker))

    runs = [run_of(LoopMonitor(report=False)), run_of(LoopMonitor("mine", report=False))]

    assert runs == [tmp_path / "storage" / "trainperf", Path("mine/trainperf")]


def run_of(monitor: LoopMonitor) -> Path | None:
    """Where it writes."""
    with monitor:
        for _ in monitor.batches([torch.ones(1)] * 2):
            monitor.end_step()
    return monitor.run


@pytest.mark.slow
@pytest.mark.ddp
def test_two_workers_leave_one_run_on_the_storage(tmp_path: Path) -> None:
    """The example, as it is: one directory, both ranks merged, the report printed once."""
    printed = started(tmp_path, str(EXAMPLE))

    (run,) = {file.parent for file in tmp_path.rglob("steps-rank*.jsonl")}
    summary = summarize(Run.open(run))
    assert run == tmp_path / "runs" / "digits" / "trainperf"
    assert (summary.run.world_size, len(summary.run.ranks)) == (2, 2)
    assert (summary.run.steps, summary.run.faults) == (60, {})
    assert printed.count(" · 2 ranks · ") == 1, printed


@pytest.mark.slow
@pytest.mark.ddp
def test_a_worker_that_is_restarted_begins_a_run_of_its_own(tmp_path: Path) -> None:
    """Next to the first, which did not come to its end; no process of Ray's or ours is left."""
    started(tmp_path, "-c", FAILS_ONCE, str(tmp_path))

    failed, whole = (Run.open(tmp_path / "linear" / f"trainperf{k}") for k in ("", "-1"))
    assert failed.ranks == whole.ranks == (0, 1)
    assert summarize(failed).run.state != "finished"
    assert summarize(whole).run.steps == 60
    assert summarize(whole).run.state == "finished"


def started(place: Path, *arguments: str) -> str:
    """What a driver prints; it and its Ray have ended."""
    pytest.importorskip("ray.train", reason="ray[train] is not installed")
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, **QUIETLY},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr
