"""Runs that a tracker has open: what they get, and that nothing waits for them."""

import os
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from trainperf.loop import LoopMonitor
from trainperf.recording.sinks import trackers
from trainperf.recording.sinks.trackers import ANSWER, MOST_WAITING, OpenTrackers
from trainperf.testing import FakeClock


class Run:
    """What is used of a run of Weights & Biases."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.summary: dict[str, object] = {}
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def log(self, values: dict[str, object], *, commit: bool) -> None:
        """Keep what the next row gets."""
        assert not commit, "a row of ours would be a step of ours"
        self.may_go_on.wait(60)
        self.rows.append(values)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """One that a script has open."""
    opened = Run()
    module = ModuleType("wandb")
    module.run = opened  # type: ignore[attr-defined]
    module.Html = lambda page, inject: (page, inject)  # type: ignore[attr-defined]
    monkeypatch.setitem(trackers.sys.modules, "wandb", module)
    return opened


def test_values_and_the_answer_join_the_open_run(run: Run, tmp_path: Path) -> None:
    """None of the calls is a step of its own."""
    handed_over = OpenTrackers()
    handed_over.log_metrics({"trainperf/step_s": 0.1}, step=7)
    handed_over.publish("Step time 100 ms.", tmp_path / "report.html")
    values, page = run.rows
    assert values == {"trainperf/step_s": 0.1}
    assert page == {"trainperf/report": (str(tmp_path / "report.html"), False)}
    assert run.summary == {ANSWER: "Step time 100 ms."}


def test_a_tracker_that_hangs_holds_up_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls beyond a limit are dropped and counted; at the end it has a moment more."""
    monkeypatch.setattr(trackers, "PATIENCE_NS", 1)
    run.may_go_on.clear()
    handed_over = OpenTrackers()
    for step in range(MOST_WAITING + 10):
        handed_over.log_metrics({"trainperf/step_s": 0.1}, step=step)
    assert 9 <= handed_over.dropped <= 10  # one is being handed over
    handed_over.publish("", tmp_path)
    assert f"too slow for {MOST_WAITING + 11} calls" in caplog.text
    run.may_go_on.set()


@pytest.mark.parametrize(
    ("logger", "closed"),
    [("lightning.pytorch.loggers.wandb", False), ("lightning.pytorch.loggers.csv_logs", True)],
)
def test_nothing_is_logged_twice_or_to_nobody(
    run: Run, logger: str, *, closed: bool, tmp_path: Path
) -> None:
    """A logger of the framework serves the same run, or none is open."""
    served = type("Logger", (SimpleNamespace,), {"__module__": logger})()
    if closed:
        trackers.sys.modules["wandb"].run = None  # type: ignore[attr-defined]
    handed_over = OpenTrackers([served])
    handed_over.log_metrics({"trainperf/step_s": 0.1}, step=7)
    handed_over.publish("", tmp_path)
    assert run.rows == []


def test_a_fault_of_a_tracker_is_not_the_trainings(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is switched off with a warning."""
    run.log = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment]
    handed_over = OpenTrackers()
    handed_over.log_metrics({"trainperf/step_s": 0.1}, step=7)
    handed_over.publish("", tmp_path)
    assert "trackers is switched off" in caplog.text


# The real ones, without a network.


def trained(tmp_path: Path, log: object) -> None:
    """A plain loop of 120 steps that logs its own loss at every tenth."""
    clock = FakeClock()
    monitor = LoopMonitor(tmp_path / "runs", log_every_n_steps=50, clock=clock, report=False)
    for step, batch in enumerate(monitor.batches([torch.zeros(1)] * 120)):
        clock.advance(ms=10)
        if step % 10 == 0:
            log({"loss": float(batch)}, step)  # type: ignore[operator]
        monitor.end_step()
    monitor.close()


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for what trackers write."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_weights_and_biases_has_only_the_scripts_steps(offline: Path) -> None:
    """Twelve rows were logged, and the summary has readings and the answer."""
    wandb = pytest.importorskip("wandb")
    run = wandb.init(project="p", dir=offline)
    trained(offline, lambda values, _: run.log(values))
    assert run.step == 12
    assert run.summary["trainperf/step_s"] == pytest.approx(0.01, rel=2e-3)
    assert run.summary[ANSWER].startswith("Step time 10.0 ms")
    run.finish()


def test_mlflow_has_values_at_the_loops_steps(offline: Path) -> None:
    """In its active run, with the page as an artifact."""
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(offline.as_uri() + f"{os.sep}mlruns")
    with mlflow.start_run() as active:
        trained(offline, lambda values, step: mlflow.log_metrics(values, step=step))
    client = mlflow.MlflowClient()
    history = client.get_metric_history(active.info.run_id, "trainperf/step_s")
    assert [each.value for each in history] == pytest.approx([0.01] * 3, rel=2e-3)
    assert history[-1].step <= 120
    run = client.get_run(active.info.run_id)
    assert run.data.tags[ANSWER].startswith("Step time 10.0 ms")
    (page,) = client.list_artifacts(active.info.run_id, "trainperf")
    assert page.path == "trainperf/report.html"
