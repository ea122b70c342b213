"""`memory.json` of real fits: written with the audit, at the end, and when memory ran out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, trainer
from torch import Tensor, nn

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor


def ledger_in(run: Path) -> MemoryLedger:
    """The ledger, which must be there."""
    return read_document(MemoryLedger, run)


def test_an_audited_fit_tells_its_activations_and_its_peak(tmp_path: Path) -> None:
    """Four weights and a bias; of the step that was asked for, whatever happened after it.

    Two micro-batches make a step.
    """
    perf = TrainPerf(audit_at=2, report=False)
    trainer(tmp_path, perf, accumulate_grad_batches=2).fit(Model(), Loader(10))
    ledger = ledger_in(tmp_path / "trainperf")

    assert (ledger.step, ledger.micro_batches) == (2, 2)
    assert ledger.parameters_bytes == ledger.gradients_bytes == 5 * 4
    assert ledger.activations_bytes is not None
    assert ledger.peak_bytes == sum(ledger.at_peak_bytes.values())
    assert ledger.precision == "32-true"


class Failing(Model):
    """Fails for another reason."""

    def loss(self, batch: Any) -> Tensor:
        """Not for lack of memory."""
        raise RuntimeError("shapes differ")


def test_a_fit_without_an_audit_that_failed_otherwise_tells_what_is_there(tmp_path: Path) -> None:
    """It did not run out of memory; and it says why the rest is not known."""
    with pytest.raises(RuntimeError, match="shapes differ"):
        trainer(tmp_path, TrainPerf(report=False)).fit(Failing(), Loader(5))
    ledger = ledger_in(tmp_path / "trainperf")

    assert ledger.out_of_memory is None
    assert (ledger.step, ledger.parameters_bytes, ledger.activations_bytes) == (None, 20, None)
    assert "no step was audited" in ledger.reasons["activations_bytes"]


def test_a_loop_that_ran_out_of_memory_says_where(tmp_path: Path) -> None:
    """The exception is the user's, and what it tells is kept."""
    model = nn.Linear(4, 4)
    monitor = LoopMonitor(tmp_path, report=False).watch(model)

    def loop() -> None:
        with monitor:
            for rows in monitor.batches([torch.ones(2, 4)] * 3):
                model(rows.repeat(2**46, 1))

    with pytest.raises(RuntimeError, match="allocate"):
        loop()
    ended = ledger_in(monitor.run).out_of_memory

    assert "test_memory_ledger.py" in ended.where
    assert ended.requested_bytes == 2**46 * 2 * 4 * 4


def test_what_is_kept_of_every_step_is_named_with_the_line_that_made_it(tmp_path: Path) -> None:
    """The audited step knows where its tensors come from."""

    class Keeping(Model):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[Tensor] = []

        def loss(self, batch: Any) -> Tensor:
            self.kept.append(self.layer(batch) * torch.ones(1, 1 << 18))
            return super().loss(batch)

    trainer(tmp_path, TrainPerf(audit_at=2, report=False)).fit(Keeping(), Loader(12))
    holder = next(h for h in ledger_in(tmp_path / "trainperf").held if h.name == "Keeping.kept")

    assert (holder.count, holder.graphs) == (12, 12)
    assert "test_memory_ledger.py" in holder.where
    assert holder.made_at == holder.where


def test_a_loop_that_never_named_its_model_has_no_ledger(tmp_path: Path) -> None:
    """Nothing is known, and nothing is claimed to be zero."""
    monitor = LoopMonitor(tmp_path, report=False)
    with monitor:
        for _ in monitor.batches([torch.ones(2)] * 3):
            monitor.end_step()

    assert read_document(MemoryLedger, monitor.run) is None
