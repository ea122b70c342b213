"""What waits for the device is named with its line; a healthy step passes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import support.smoke
import torch

from trainperf.smoke import SmokeFailure, assert_no_sync, no_sync


BATCH = torch.tensor([1.0, 2.0, 3.0, 4.0])
ONE = torch.tensor(1)
LINES = Path(support.smoke.__file__).read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> int:
    """The number of the line of `support/smoke.py` that holds *text*."""
    return next(number for number, line in enumerate(LINES, 1) if text in line)


WAITS = {
    "item": (lambda batch: batch.sum().item(), ".item()"),
    "float": (lambda batch: float(batch.sum()), "float(tensor)"),
    "int": (lambda batch: int(batch.sum()), "int(tensor)"),
    "if": (lambda batch: 1 if batch.sum() else 2, "bool(tensor)"),
    "tolist": (lambda batch: batch.tolist(), ".tolist()"),
    "cpu": (lambda batch: batch.cpu(), ".cpu()"),
    "numpy": (lambda batch: batch.numpy(), ".numpy()"),
    "asarray": (np.asarray, "NumPy"),
    "f-string": (lambda batch: f"{batch.sum()}", "f-string"),
    "index": (lambda batch: [1, 2][ONE], "index"),
    "in": (lambda batch: 1.0 in batch, "`in tensor`"),
    "nonzero": (lambda batch: batch.nonzero(), "nonzero()"),
    "where": (lambda batch: torch.where(batch > 0), "nonzero()"),
    "mask": (lambda batch: batch[batch > 0], "boolean mask"),
    "masked_select": (lambda batch: batch.masked_select(batch > 0), "masked_select()"),
    "unique": (lambda batch: batch.unique(), "unique()"),
    "equal": (lambda batch: torch.equal(batch, batch), "torch.equal()"),
    "repeat": (lambda batch: batch.repeat_interleave(batch.long()), "output_size"),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_for_the_device_is_found(name: str) -> None:
    """Each way to bring a value to the host, once, with its name and this file."""
    step, said = WAITS[name]

    with pytest.raises(SmokeFailure) as failed:
        assert_no_sync(step, BATCH)

    assert said in failed.value.saw
    assert "1 time:" in failed.value.saw
    assert Path(__file__).name in failed.value.saw


HEALTHY: dict[str, Callable[[torch.Tensor], object]] = {
    "where": lambda batch: torch.where(batch > 0, batch, -batch),
    "fill": lambda batch: batch.masked_fill(batch > 1, 0.0),
    "gather": lambda batch: batch[ONE.unsqueeze(0)],
    "to device": lambda batch: batch.to(torch.device("cpu")),
    "to dtype": lambda batch: batch.to(torch.float64),
    "shape": lambda batch: batch.shape[0] * batch.numel(),
    "detach": lambda batch: batch.sum().detach(),
    "repeat": lambda batch: torch.repeat_interleave(batch, batch.long(), output_size=10),
    "assign": lambda batch: batch.clone().index_fill_(0, ONE.unsqueeze(0), 0.0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_stays_on_the_device_passes(name: str) -> None:
    """The remedies that the messages name do not fail themselves."""
    assert_no_sync(HEALTHY[name], BATCH)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_a_healthy_training_step_passes(kind: type[torch.optim.Optimizer]) -> None:
    """Forward, backward, clipping, optimizer: their step counters live on the host everywhere."""
    model = torch.nn.Linear(4, 4)

    assert_no_sync(support.smoke.trains, BATCH, kind(model.parameters()), model)


@pytest.mark.parametrize(
    ("step", "where", "advice"),
    [
        (
            support.smoke.reads_item,
            f"{line_of('.item()')} in reads_item: .item()",
            "loss.detach()",
        ),
        (support.smoke.branches, f"{line_of('if batch')} in branches", "torch.where"),
    ],
)
def test_the_line_and_the_function_are_the_users_and_the_advice_fits(
    step: Callable[[torch.Tensor], object], where: str, advice: str
) -> None:
    """Not a line of torch, and not this file, from which the step was called."""
    with pytest.raises(SmokeFailure) as failed:
        assert_no_sync(step, BATCH)

    assert f"support/smoke.py:{where}" in failed.value.saw
    assert advice in failed.value.do


@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_waits_unless_the_optimizer_is_fused(fused: bool) -> None:  # noqa: FBT001
    """It reads `found_inf`, and the advice is the fused optimizer that passes here."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)

    def step() -> None:
        scaler.scale((weight * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    if fused:
        assert_no_sync(step)
        return
    with pytest.raises(SmokeFailure, match=r"GradScaler\.step\(\) reads") as failed:
        assert_no_sync(step)
    assert "fused=True" in failed.value.do


def test_waits_inside_backward_are_found() -> None:
    """A hook of the user's that reads the gradient."""
    weight = torch.ones(4, requires_grad=True)

    def step() -> None:
        (weight * 2).sum().backward()

    weight.register_hook(lambda grad: grad * grad.norm().item())
    with pytest.raises(SmokeFailure, match=r"test_syncs\.py"):
        assert_no_sync(step)


def test_repeated_waits_are_counted_by_line() -> None:
    """Four reads on one line are one line and a number."""
    with pytest.raises(SmokeFailure, match="4 times:") as failed:
        assert_no_sync(lambda batch: [each.item() for each in batch], BATCH)

    assert failed.value.saw.count("\n") == 1
    assert failed.value.saw.endswith("(4 ×)")


def test_only_the_warm_up_may_wait() -> None:
    """A wait in the first call only passes; without a warm-up it does not."""
    calls = iter([True, False, True])

    def step(batch: torch.Tensor) -> None:
        if next(calls):
            batch.sum().item()

    assert_no_sync(step, BATCH)
    with pytest.raises(SmokeFailure):
        assert_no_sync(step, BATCH, warmup=0)


def test_a_function_that_may_read_may_read_and_its_errors_are_its_own() -> None:
    """On a CPU nobody can tell a length on the host from a loss on the device, but its author."""
    assert_no_sync(support.smoke.reads_item, BATCH, allowed=("reads_item",))
    with pytest.raises(RuntimeError, match="must match"):
        assert_no_sync(lambda: BATCH + torch.ones(3), warmup=0)


def test_a_block_can_be_watched_too() -> None:
    """And nothing is watched after it."""
    with pytest.raises(SmokeFailure), no_sync():
        BATCH.tolist()

    assert BATCH.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_debug_mode_is_put_back_and_host_tensors_are_free() -> None:
    """A CPU tensor's value costs nothing there; a CUDA tensor's does."""
    batch = BATCH.cuda()

    assert_no_sync(lambda: (batch * 2, BATCH.sum().item()))
    for waits in (lambda: batch.sum().item(), batch.nonzero, batch.cpu):
        with pytest.raises(SmokeFailure, match=r"test_syncs\.py"):
            assert_no_sync(waits)
        assert torch.cuda.get_sync_debug_mode() == 0
