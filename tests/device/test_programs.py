"""What training scripts do beside operators: loaders, streams, compiling, recomputing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import Graph, no_synchronisation, recorded_spans, work
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    """Rows of one number."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


@pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor:DeprecationWarning")
def test_batches_of_workers_are_pinned_and_copied_without_a_wait(device: torch.device) -> None:
    """In worker processes that are forked from one that uses the device."""
    total = torch.zeros((), device=device)
    for batch in DataLoader(Numbers(), batch_size=2, num_workers=1, **threaded.PINNED):
        assert batch.is_pinned()
        with no_synchronisation():
            total += batch.to(device, non_blocking=True).sum()
    assert total.item() == 112.0


def test_a_backward_pass_runs_on_the_streams_of_its_forward_pass(device: torch.device) -> None:
    """And the stream that asked for it waits for them."""
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    side = torch.Stream(device=device)
    torch.accelerator.synchronize()
    with recorded_spans() as spans:
        with threaded.stream(side):
            loss = (weight @ weight).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = weight.grad.cpu()
    assert {span.stream for span in spans if span.name == "aten::mm"} == {side.stream_id}
    assert gradient.tolist() == [[8.0] * 4] * 4


def test_a_compiled_model_computes_the_same(device: torch.device) -> None:
    """By the backend that needs no compiler of kernels."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
    inputs = torch.ones(4, 8, device=device)
    compiled = torch.compile(model, backend="aot_eager")
    loss = compiled(inputs).sum()
    loss.backward()
    assert torch.equal(loss.detach().cpu(), model(inputs).sum().detach().cpu())


def test_recomputing_draws_the_same_numbers(device: torch.device) -> None:
    """Activation checkpointing keeps the state of the device's generator."""
    dropout = nn.Dropout(0.5)
    inputs = torch.ones(64, device=device, requires_grad=True)
    output = checkpoint(dropout, inputs, use_reentrant=False)
    output.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(inputs.grad.cpu(), output.detach().cpu())


def test_a_training_step_is_captured_and_replayed(device: torch.device) -> None:
    """Forward, backward and update, as one launch; each makes the output a tenth smaller."""
    model = nn.Linear(4, 1).to(device)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(2, 4, device=device)

    def step() -> None:
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    step()
    torch.accelerator.synchronize()
    graph = Graph()
    with graph.capture():
        step()
    before = model(inputs).square().mean().item()
    for _ in range(10):
        graph.replay()
    assert model(inputs).square().mean().item() == pytest.approx(before * 0.81**10, rel=1e-3)


def test_a_process_ends_though_work_is_planted(device: torch.device) -> None:
    """What is planted ends with it."""
    script = (
        "from support.device.frontend import attach\nattach()\n"
        "from support.device.plants import work\nwork(600_000.0)\n"
    )
    paths = os.pathsep.join(str(path) for path in Path(__file__).parents[:2])
    ended = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths}, check=False
    )
    assert ended.returncode == 0


def test_without_a_compiler_there_is_a_notice(tmp_path: Path) -> None:
    """Tests are skipped by it."""
    script = (
        "from support.device.build import NoCompilerError, extension\n"
        "try:\n    extension()\nexcept NoCompilerError as error:\n    print(error)\n"
    )
    paths = os.pathsep.join(str(path) for path in Path(__file__).parents[:2])
    environment = {"PATH": "", "PYTHONPATH": paths, "TRAINPERF_CACHE": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert "g++ and ninja not found" in ended.stdout


def test_planted_work_ends_with_its_test(device: torch.device) -> None:
    """The fixture takes it out of the queue, so that no test waits for another's."""
    work(600_000.0)
    assert not torch.accelerator.current_stream(device).query()
