"""What training scripts do beside operators: loaders, streams, compiling, recomputing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import no_synchronisation, recorded_spans, work
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
        assert weight.grad is not None
        gradient = weight.grad.cpu()
    assert {span.stream for span in spans if span.name == "aten::mm"} == {side.stream_id}
    assert gradient.tolist() == [[8.0] * 4] * 4


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
