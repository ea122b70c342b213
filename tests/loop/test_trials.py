"""Changes are tried in a plain loop whose process was started for that, and ends with it."""

from pathlib import Path

import pytest
import torch
from support.trial_launch import launch_trials, trial_results
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainperf.loop import LoopMonitor
from trainperf.trials import Trial, cannot


def train(place: Path, trials: list[Trial]) -> nn.Module:
    """A model after one epoch, or after what was done of it until the process is to end."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
    optimizer = torch.optim.AdamW(model.parameters())
    rows = TensorDataset(torch.randn(120, 4, generator=torch.Generator().manual_seed(1)))
    with LoopMonitor(place, report=False, trials=trials).watch(model, optimizer) as monitor:
        for (x,) in monitor.batches(DataLoader(rows, batch_size=2, shuffle=True)):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.end_step(loss)
    return model


def test_a_built_in_trial_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a trial of its name that says why; the process ends with the last one."""
    launch_trials(monkeypatch, tmp_path / "tried", minutes=0.003)
    with pytest.raises(SystemExit):
        train(tmp_path, [cannot("optimizer_fused", "it is mine")])

    tried = trial_results(tmp_path / "tried")
    assert tried["optimizer_fused"].reason == "it is mine"
    assert tried["free_loader"].pairs >= 8
