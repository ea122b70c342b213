"""`machine=False`: nothing is sampled; conformance shows that it is in every door without it."""

from pathlib import Path

import lightning.pytorch as pl
import pytest
from lightning.pytorch.demos.boring_classes import BoringModel
from support.fits import QUIET

from trainperf.lightning import StepTimeMonitor
from trainperf.loop import LoopMonitor
from trainperf.loop import fit as module


def test_a_fit_that_does_not_ask_for_it_samples_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a callback for one measurement: step time alone is what was requested."""
    calls: list[tuple[str, int, str]] = []

    def noted(run: Path, rank: int, device: object) -> list[object]:
        calls.append((run.name, rank, str(device)))
        return []

    monkeypatch.setattr(module, "machine_probe", noted)
    for machine in (True, False):
        with LoopMonitor(tmp_path, report=False, lines=False, machine=machine) as monitor:
            for _ in monitor.batches([1, 2, 3]):
                monitor.end_step()
    options = {**QUIET, "default_root_dir": str(tmp_path)}
    pl.Trainer(max_steps=3, callbacks=[StepTimeMonitor()], **options).fit(BoringModel())

    assert calls == [("trainperf", 0, "cpu")]
