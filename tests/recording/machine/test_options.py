"""`machine=False` in every loop, and that the machine is sampled without it."""

from collections.abc import Callable
from pathlib import Path

import lightning.pytorch as pl
import pytest
from lightning.pytorch.demos.boring_classes import BoringModel
from support.fits import QUIET
from support.hugging_face import quiet, trainer

from trainperf.lightning import StepTimeMonitor, TrainPerf
from trainperf.loop import LoopMonitor
from trainperf.loop import fit as module
from trainperf.recording.probes.base import Probe


def plain(path: Path, *, machine: bool) -> None:
    """A loop of one's own."""
    monitor = LoopMonitor(path, report=False, lines=False, machine=machine)
    for _ in monitor.batches([1, 2, 3]):
        monitor.end_step()
    monitor.close()


def lightning(path: Path, *, machine: bool) -> None:
    """A Trainer of Lightning's."""
    callback = TrainPerf(report=False, lines=False, machine=machine, dirpath=str(path))
    pl.Trainer(max_steps=3, callbacks=[callback], **QUIET).fit(BoringModel())


def hugging_face(path: Path, *, machine: bool) -> None:
    """A Trainer of Hugging Face's."""
    trainer(path, quiet(machine=machine), max_steps=3).train()


@pytest.mark.parametrize("train", [plain, lightning, hugging_face], ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("machine", [True, False])
def test_a_loop_samples_its_machine_unless_it_is_told_not_to(
    train: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, machine: bool
) -> None:
    """In its run directory, as the rank that it is, on the device that it has."""
    calls: list[tuple[str, int, str]] = []

    def noted(run: Path, rank: int, device: object) -> list[Probe]:
        calls.append((run.name, rank, str(device)))
        return []

    monkeypatch.setattr(module, "machine_probe", noted)
    train(tmp_path, machine=machine)

    assert calls == ([("trainperf", 0, "cpu")] if machine else [])


def test_a_callback_for_one_measurement_samples_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step time alone is what was requested."""
    calls: list[object] = []
    monkeypatch.setattr(module, "machine_probe", lambda *given: calls.append(given) or [])
    options = {**QUIET, "default_root_dir": str(tmp_path)}
    pl.Trainer(max_steps=3, callbacks=[StepTimeMonitor()], **options).fit(BoringModel())

    assert calls == []
