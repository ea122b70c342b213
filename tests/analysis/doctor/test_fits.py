"""The doctor on real fits: nothing of it is planted on disk."""

from pathlib import Path

import pytest
import torch
from faults.base import train
from faults.models import WIDTH, Classifier
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainperf.analysis.doctor import Case, Outcome, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class AtHand(Dataset[tuple[Tensor, Tensor]]):
    """The same batch each time, made beforehand: waiting for it takes no time."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, 10, (size,), generator=generator)
        self._batch = torch.randn(size, WIDTH, generator=generator), labels

    def __len__(self) -> int:
        return 60 * len(self._batch[0])

    def __getitems__(self, places: list[int]) -> tuple[Tensor, Tensor]:
        """A whole batch."""
        return self._batch


def as_it_is(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Nothing to collate."""
    return batch


def checks_of(out: Path) -> dict[str, Outcome]:
    """Every check of the run below *out*."""
    evidence = examine(Run.open(out))
    return {check.id: check for check in examined(Case(facts=evidence)).checks}


def test_a_fit_that_is_in_order_fails_nothing_that_was_looked_at(tmp_path: Path) -> None:
    """Large products, a fused optimizer, batches at hand; one step audited."""
    loader = DataLoader(AtHand(256), batch_size=256, collate_fn=as_it_is)
    train(tmp_path, Classifier(), loader)
    checks = checks_of(tmp_path)

    passed = {name for name, check in checks.items() if check.status == "pass"}
    assert {
        "warmed_up",
        "steady_state",
        "hot_path",
        "loader",
        "layouts",
        "accumulation",
        "throughput_unit",
    } <= passed
    assert checks["peak_memory"].status == "unknown"  # too short to tell a leak from a warm-up
    assert checks["pinned_transfer"].status == "not_applicable"
    assert checks["compile_split"].status == "not_applicable"
