"""Changes are tried in a plain loop that goes on afterwards."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.loop import LoopMonitor
from trainperf.trials import Trial, cannot
from trainperf.trials.training import Training


def trained(place: Path, trials: list[Trial] | None, fails: dict[str, bool]) -> nn.Module:
    """A model after one epoch, whose steps raise while *fails* says so."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
    optimizer = torch.optim.AdamW(model.parameters())
    rows = TensorDataset(torch.randn(120, 4, generator=torch.Generator().manual_seed(1)))
    monitor = LoopMonitor(place, report=False).watch(model, optimizer)
    if trials is not None:
        monitor.trials(trials, minutes=0.003)
    with monitor:
        for (x,) in monitor.batches(DataLoader(rows, batch_size=2, shuffle=True)):
            if fails["now"]:
                raise ArithmeticError("not with this change")
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.end_step(loss)
    return model


def results(place: Path) -> dict[str, TrialResult]:
    """What was tried, by name."""
    (file,) = place.rglob(Trials.file)
    document = read_document(Trials, file.parent)
    assert document is not None
    assert document.trying == ""
    return {trial.id: trial for trial in document.trials}


def test_a_loop_ends_bit_by_bit_as_without_and_a_built_in_trial_can_be_left_out(
    tmp_path: Path,
) -> None:
    """By a trial of its name that says why."""
    fails = {"now": False}
    without = trained(tmp_path / "a", None, fails)
    tried = trained(tmp_path / "b", [cannot("optimizer_fused", "it is mine")], fails)

    assert all(map(torch.equal, without.parameters(), tried.parameters()))
    found = results(tmp_path / "b")
    assert found["optimizer_fused"].reason == "it is mine"
    assert found["free_loader"].pairs >= 8


def test_a_step_that_raises_under_a_change_ends_the_loop_and_the_change_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is switched off before the run is closed."""
    fails = {"now": False}
    change = Trial("change", lambda: fails.update(now=True), lambda: fails.update(now=False))
    with pytest.raises(ArithmeticError):
        trained(tmp_path, [change], fails)

    assert not fails["now"]
    assert results(tmp_path)["change"].verdict == "failed"
    assert "ArithmeticError came with change switched on" in caplog.text


def numbered(place: Path, change: Trial) -> Iterator[tuple[LoopMonitor, int]]:
    """An epoch that tries the change; after each step the first row of its batch."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    monitor = LoopMonitor(place, report=False).watch(model, optimizer).trials([change])
    rows = TensorDataset(torch.arange(120.0).reshape(120, 1))
    for (x,) in monitor.batches(DataLoader(rows, batch_size=2)):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.end_step(loss)
        yield monitor, int(x[0])
    monitor.close()


def test_a_loop_that_closes_its_monitor_amid_a_trial_has_its_own_batches_again(
    tmp_path: Path,
) -> None:
    """Those of trials have no end; the change is unmade before."""
    on = {"now": False}
    change = Trial("change", lambda: on.update(now=True), lambda: on.update(now=False))
    own: list[int] = []
    for monitor, row in islice(numbered(tmp_path, change), 300):
        if monitor.monitor.finished:
            own.append(row)
        elif on["now"]:
            monitor.close()

    assert not on["now"]
    assert own == list(range(own[0], 120, 2))


def test_after_a_fault_of_the_plan_the_loop_has_its_own_batches_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had begun to compare losses on the same few batches, again and again."""
    monkeypatch.setattr(Training, "steps_ahead", property(lambda _: 1 / 0))
    change = Trial("change", lambda: None, lambda: None)
    rows = [row for _, row in islice(numbered(tmp_path, change), 300)]

    assert rows[-1] == 118
    assert len(rows) < 70
