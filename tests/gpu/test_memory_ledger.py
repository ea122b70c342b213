"""The memory ledger beside the allocator's own numbers."""

import gc

import pytest
import torch
from support.gpu import DEVICE, backend
from torch import nn

from trainperf.audit.memory_ledger import memory_ledger


pytestmark = pytest.mark.gpu


def test_what_has_a_name_is_allocated() -> None:
    """Parameters, gradients, state: no byte twice."""
    gc.collect()  # what other tests have left is not this one's
    begun = backend().memory_allocated()
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    rows = torch.randn(256, 512, device=DEVICE)

    def step() -> None:
        model(rows).square().mean().backward()
        optimizer.step()

    ledger = memory_ledger(model, optimizer, step=step)

    weights = sum(p.nbytes for p in model.parameters())
    assert ledger.static_bytes == pytest.approx(4 * weights, abs=64)
    assert begun + rows.nbytes + ledger.static_bytes <= backend().memory_allocated()


def test_the_peak_of_the_tensors_is_below_the_allocators() -> None:
    """Which also has what kernels take for themselves."""
    model = nn.Linear(1024, 1024).to(DEVICE)
    rows = torch.randn(4096, 1024, device=DEVICE)
    begun = backend().memory_allocated()
    backend().reset_peak_memory_stats()

    ledger = memory_ledger(model, step=lambda: model(rows).square().mean().backward())

    made = ledger.peak_bytes - ledger.parameters_bytes
    taken = backend().max_memory_allocated() - begun
    assert made <= taken
    assert made >= 0.5 * taken
