"""The memory ledger against what the tensors are known to take."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils.checkpoint import checkpoint

from trainperf.audit import Audit
from trainperf.audit.memory_ledger import memory_ledger
from trainperf.core.artifacts.memory import MemoryLedger


ROWS, WIDTH = 64, 128
WEIGHTS = (WIDTH * WIDTH + WIDTH) * 4
"""Bytes of one linear layer."""
WIDE = ROWS * WIDTH * 4
"""Bytes of what one layer returns."""


class Blocks(nn.Module):
    """Two layers with a nonlinearity, the way models number their blocks."""

    def __init__(self, *, recompute: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            for _ in range(3)
        )
        self.recompute = recompute
        self.register_buffer("scale", torch.ones(1000))

    def forward(self, rows: Tensor) -> Tensor:
        """One block after the other."""
        for block in self.blocks:
            rows = checkpoint(block, rows, use_reentrant=False) if self.recompute else block(rows)
        return rows


def stepping(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step on rows of ones."""
    optimizer.zero_grad()
    model(torch.ones(ROWS, WIDTH)).square().mean().backward()
    optimizer.step()


def stepped(model: nn.Module, kind: type[torch.optim.Optimizer] = torch.optim.SGD) -> MemoryLedger:
    """The ledger of one step of a model."""
    optimizer = kind(model.parameters(), 0.1)  # type: ignore[call-arg]  # both take a rate
    return memory_ledger(model, optimizer, step=lambda: stepping(model, optimizer))


def test_what_is_there_without_a_step_is_counted_from_the_tensors() -> None:
    """Parameters, buffers; gradients and state once there are some."""
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters())
    before = memory_ledger(model, optimizer)
    stepping(model, optimizer)
    after = memory_ledger(model, optimizer)

    assert (before.parameters_bytes, before.buffers_bytes) == (6 * WEIGHTS, 4000)
    assert before.gradients_bytes == 0
    assert before.optimizer_state_bytes == {}
    assert before.activations_bytes is None
    assert "no step was audited" in before.reasons["activations_bytes"]
    unlearned = memory_ledger(model, step=lambda: model(torch.ones(ROWS, WIDTH)))
    assert unlearned.activations_bytes is None
    assert "no backward" in unlearned.reasons["activations_bytes"]
    assert after.gradients_bytes == 6 * WEIGHTS
    assert after.optimizer_state_bytes == {
        "step": 12 * 4,
        "exp_avg": 6 * WEIGHTS,
        "exp_avg_sq": 6 * WEIGHTS,
    }
    assert after.parameters == after.trainable_parameters == 6 * WEIGHTS // 4


def test_shared_memory_counts_once() -> None:
    """A tied head is the embedding; a buffer that is a view of a weight is the weight."""
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("view", model[0].weight.detach()[:10])

    ledger = memory_ledger(model)

    assert ledger.parameters_bytes == 50 * 8 * 4
    assert ledger.buffers_bytes == 0
    assert ledger.parameters == 400


def test_copies_in_higher_precision_are_master_weights() -> None:
    """An optimizer that steps fp32 copies of a half-precision model."""
    model = nn.Linear(WIDTH, WIDTH).bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]

    ledger = memory_ledger(model, torch.optim.SGD(masters, 0.1))

    assert ledger.parameters_bytes == WEIGHTS // 2
    assert ledger.optimizer_state_bytes == {"master weights": WEIGHTS}
    assert ledger.optimizer_bytes == WEIGHTS


def saved_by_autograd(model: nn.Module) -> int:
    """Bytes that torch's own hooks see saved, parameters and what was given left out."""
    rows = torch.ones(ROWS, WIDTH)
    known = {p.untyped_storage().data_ptr() for p in (*model.parameters(), rows)}
    sizes: dict[int, int] = {}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(rows).square().mean()
    assert loss.numel() == 1
    return sum(sizes.values())


def test_activations_are_what_autograd_saved_and_the_loss() -> None:
    """Hidden values before and after each GELU, and what each block returns; views count once.

    Torch's saved-tensor hooks say the same, but for the rows and the loss, which the step makes
    itself.
    """
    model = Blocks()

    ledger = stepped(model)

    assert ledger.activations_bytes is not None
    assert saved_by_autograd(model) == 9 * WIDE
    assert ledger.activations_bytes == 9 * WIDE + WIDE + 4
    # Each layer returns one; the rows are made outside of all modules.
    sizes = {one.module: one.size_bytes for one in ledger.activations}
    assert sizes["Blocks.blocks.0.0"] == sizes["Blocks.blocks.2.1"] == WIDE
    assert sum(sizes.values()) == ledger.activations_bytes


def test_what_is_recomputed_is_no_activation() -> None:
    """Only what each block is given is kept."""
    kept, recomputed = stepped(Blocks()), stepped(Blocks(recompute=True))
    sizes = {one.module: one.size_bytes for one in recomputed.activations}

    assert (recomputed.activations_bytes or 0) < 0.6 * (kept.activations_bytes or 0)
    assert "Blocks.blocks.0.1" not in sizes
    assert sizes["Blocks.blocks.0.2"] == WIDE


@pytest.mark.parametrize("steps", [0, 1])
def test_the_peak_is_the_sum_of_its_parts(steps: int) -> None:
    """In the first step, where gradients and state are made, as in the second."""
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(steps):
        stepping(model, optimizer)

    ledger = memory_ledger(model, optimizer, step=lambda: stepping(model, optimizer))

    assert ledger.peak_bytes == sum(ledger.at_peak_bytes.values())
    assert ledger.at_peak_bytes["parameters"] == 6 * WEIGHTS
    assert min(ledger.at_peak_bytes.values()) > 0
    assert ledger.gradients_bytes == 6 * WEIGHTS
    # The update is where most is alive: it holds a temporary for each parameter.
    assert ledger.at_peak_bytes["gradients"] == 6 * WEIGHTS
    assert ledger.at_peak_bytes["temporaries"] >= 6 * WEIGHTS


def test_a_temporary_of_forward_counts_at_its_peak() -> None:
    """A megabyte that is made and dropped before backward is no activation."""
    weight = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(weight.parameters(), 0.1)

    def step() -> None:
        large = torch.ones(1 << 18)
        scale = large.mean()
        del large
        (weight(torch.ones(2, 4)) * scale).mean().backward()

    ledger = memory_ledger(weight, optimizer, step=step)

    assert ledger.at_peak_bytes["temporaries"] >= 1 << 20
    assert (ledger.activations_bytes or 0) < 1000


def test_accumulation_keeps_the_activations_of_one_micro_batch() -> None:
    """Four of them leave no more than one does."""
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def accumulate() -> None:
        for _ in range(4):
            model(torch.ones(ROWS, WIDTH)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    four = memory_ledger(model, optimizer, step=accumulate)
    one = memory_ledger(
        model, optimizer, step=lambda: model(torch.ones(ROWS, WIDTH)).mean().backward()
    )

    assert four.activations_bytes == one.activations_bytes
    # Zeroed after the update, they were there when it ran.
    assert four.gradients_bytes == 6 * WEIGHTS


def test_following_storages_changes_nothing_and_keeps_nothing_alive() -> None:
    """The same weights after the step, bit by bit; and the activations are gone."""
    model = Blocks()
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, twin)]

    stepping(twin, optimizers[1])
    audit = Audit(model)
    with audit:
        stepping(model, optimizers[0])

    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    # What is left are the gradients: two tensors for each of six layers.
    assert len(audit.storages._alive) == 24


def test_what_a_compiler_traces_with_takes_no_memory() -> None:
    """A tensor without data that says it is on the CPU, of a size that is a symbol."""
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept: list[Tensor] = []

    def step() -> None:
        with FakeTensorMode(shape_env=ShapeEnv()) as tracing:
            sizes = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
            symbolic = tracing.from_tensor(torch.ones(ROWS, WIDTH), symbolic_context=sizes)
            kept.append(symbolic * 2)
        stepping(model, optimizer)

    plain = memory_ledger(model, optimizer, step=lambda: stepping(model, optimizer))
    ledger = memory_ledger(model, optimizer, step=step)

    assert kept[0].device.type == "cpu"
    assert type(ledger.peak_bytes) is int
    assert ledger.activations_bytes == plain.activations_bytes
