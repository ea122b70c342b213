"""Values that were read too early on an asynchronous device, and waits: each planted."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import work
from support.fits import Ran, read
from torch import nn

from trainperf.audit.chip_benchmark import fastest
from trainperf.loop import LoopMonitor


TRUE_LOSS = 7.0
STEPS = 20
BEHIND_MS = 20.0
"""How long the device works on each step: the host is done long before."""


class Embedding(nn.Module):
    """Tokens on the host, everything else on the device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.layer = nn.Linear(4, 1).to(device)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return something that every parameter has a part in."""
        looked_up = self.table(tokens).to(self.layer.weight.device, non_blocking=True)
        score: torch.Tensor = self.layer(looked_up).mean()
        return score


def true_loss(score: torch.Tensor) -> torch.Tensor:
    """Return a loss of which the value is known, once the device has come to it."""
    work(BEHIND_MS)
    return score * 0.0 + TRUE_LOSS


def losses(monitor: LoopMonitor) -> list[float | None]:
    """Return the losses that were recorded."""
    return recorded(monitor).fact("loss")


def recorded(monitor: LoopMonitor) -> Ran:
    """Return what was recorded."""
    assert monitor.run is not None
    return read(monitor.run)


def unmeasured(ran: Ran, fact: str) -> bool:
    """Tell whether a fact has no values at all."""
    return all(step.facts.get(fact) is None for step in ran.steps)


def batches(number: int = STEPS) -> list[torch.Tensor]:
    """Return tokens on the host."""
    return [torch.arange(8).view(2, 4) for _ in range(number)]


def test_a_loss_is_true_where_the_first_parameter_is_on_the_host(
    device: torch.device, tmp_path: Path
) -> None:
    """The device of a loss is the loss's, not the first parameter's."""
    model = Embedding(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with LoopMonitor(tmp_path, report=False).watch(model, optimizer) as monitor:
        for tokens in monitor.batches(batches()):
            loss = true_loss(model(tokens))
            loss.backward()
            optimizer.step()
            monitor.end_step(loss)
    assert losses(monitor) == [TRUE_LOSS] * STEPS


def test_a_loss_is_true_where_the_model_was_watched_before_it_moved(
    device: torch.device, tmp_path: Path
) -> None:
    """`watch` comes before `.to(device)` in many scripts."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with LoopMonitor(tmp_path, report=False).watch(model, optimizer) as monitor:
        model.to(device)
        for _ in monitor.batches(batches()):
            loss = true_loss(model(torch.ones(2, 4, device=device)).mean())
            loss.backward()
            optimizer.step()
            monitor.end_step(loss)
    assert losses(monitor) == [TRUE_LOSS] * STEPS


@pytest.mark.parametrize("on_host", [True, False])
def test_a_loss_on_its_way_to_the_host_is_not_read_before_it_is_there(
    device: torch.device,
    tmp_path: Path,
    on_host: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """Whether the first parameter is on the host or not."""
    model = Embedding(device) if on_host else nn.Linear(4, 1).to(device)
    mirrors = torch.zeros(STEPS).pin_memory()
    with LoopMonitor(tmp_path, report=False).watch(model) as monitor:
        for step, _ in enumerate(monitor.batches(batches())):
            mirrors[step].copy_(true_loss(torch.ones((), device=device)), non_blocking=True)
            monitor.end_step(mirrors[step])
    torch.accelerator.synchronize()
    assert mirrors.tolist() == [TRUE_LOSS] * STEPS
    assert set(losses(monitor)) <= {TRUE_LOSS, None}


class StoppedError(Exception):
    """The user's exception."""


def test_a_fit_that_fails_does_not_wait_for_what_is_queued(
    device: torch.device, tmp_path: Path
) -> None:
    """The exception comes soon; a value whose copy is behind what hangs is unknown, and not 0."""
    monitor = LoopMonitor(tmp_path, report=False).watch(nn.Linear(4, 1).to(device))
    loss = torch.full((), TRUE_LOSS, device=device)

    def fit() -> None:
        with monitor:
            for _ in monitor.batches(batches()):
                monitor.end_step(loss * 1.0)
            torch.accelerator.synchronize()
            work(60_000.0)
            raise StoppedError

    begun = time.perf_counter()
    with pytest.raises(StoppedError):
        fit()
    assert time.perf_counter() - begun < 30.0
    assert set(losses(monitor)) <= {TRUE_LOSS, None}
    assert len(losses(monitor)) == STEPS


def test_tokens_are_known_where_the_loop_runs_in_inference_mode(
    device: torch.device, tmp_path: Path
) -> None:
    """And the monitor is closed outside of it."""
    mask = torch.ones(2, 4, dtype=torch.int64, device=device)
    monitor = LoopMonitor(
        tmp_path, report=False, kind="inference", tokens=lambda batch: mask
    ).watch(nn.Linear(4, 1).to(device))
    with torch.inference_mode():
        for _ in monitor.batches(batches()):
            monitor.end_step()
    monitor.close()
    assert recorded(monitor).fact("tokens_effective") == [8] * STEPS


def test_a_number_of_a_device_that_is_not_covered_is_true_or_missing(
    device: torch.device, tmp_path: Path
) -> None:
    """A reason beside a false number is worse than either."""
    planted = {3, 8, 12}
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    with LoopMonitor(tmp_path, report=False).watch(model, optimizer, scaler) as monitor:
        for step, _ in enumerate(monitor.batches(batches())):
            factor = float("inf") if step in planted else 1.0
            loss = model(torch.ones(2, 4, device=device)).mean() * factor
            scaler.scale(loss).backward()
            with monitor.phase("optimizer"):
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
            monitor.end_step(loss)
    ran = recorded(monitor)
    if not unmeasured(ran, "overflows"):
        overflowed = {step.index for step in ran.steps if step.facts["overflows"]}
        assert overflowed == planted


def test_a_device_without_a_number_is_the_current_one(device: torch.device, tmp_path: Path) -> None:
    """Its buffers are used again: no memory is allocated in the steps."""
    model = nn.Linear(4, 1).to(device)
    monitor = LoopMonitor(tmp_path, report=False).watch(model, device=device.type)
    kept = torch.full((), TRUE_LOSS, device=device)

    def allocated() -> Iterator[int]:
        for _ in monitor.batches(batches(2000)):
            monitor.end_step(kept)
            yield threaded.memory_stats()["allocation.all.allocated"]

    counts = list(allocated())
    monitor.close()
    assert counts[-1] - counts[300] <= 3
    assert losses(monitor) == [TRUE_LOSS] * 2000


def test_a_benchmark_waits_for_the_device_that_it_measures(device: torch.device) -> None:
    """Which need not be the current one."""
    other = torch.device(device.type, 1)
    shortest_s, _ = fastest(lambda: work(20.0, other), other, budget_s=0.1)
    assert shortest_s >= 0.02
