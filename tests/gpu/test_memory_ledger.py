"""The memory ledger beside the allocator's own numbers."""

import pytest
import torch
from torch import nn

from trainperf.audit.memory_ledger import memory_ledger


pytestmark = pytest.mark.gpu


def test_what_has_a_name_and_the_rest_are_what_is_allocated() -> None:
    """Parameters, gradients, state and workspace: no byte twice, none forgotten."""
    begun = torch.cuda.memory_allocated()
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    rows = torch.randn(256, 512, device="cuda")

    def step() -> None:
        model(rows).square().mean().backward()
        optimizer.step()

    ledger = memory_ledger(model, optimizer, step=step)

    assert ledger.workspace_bytes is not None
    named = ledger.static_bytes + ledger.workspace_bytes
    assert named == pytest.approx(torch.cuda.memory_allocated(), abs=1024)
    assert ledger.workspace_bytes >= begun + rows.nbytes
    assert ledger.reserved_bytes == torch.cuda.memory_reserved()


def test_the_peak_of_the_tensors_is_below_the_allocators() -> None:
    """Which also has what kernels take for themselves."""
    model = nn.Linear(1024, 1024).cuda()
    rows = torch.randn(4096, 1024, device="cuda")
    begun = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    ledger = memory_ledger(model, step=lambda: model(rows).square().mean().backward())

    assert ledger.peak_bytes is not None
    made = ledger.peak_bytes - ledger.parameters_bytes
    taken = torch.cuda.max_memory_allocated() - begun
    assert made <= taken
    assert made >= 0.5 * taken
