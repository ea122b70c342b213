"""One step of a fit is audited: written once, tagged, and nothing else of the fit changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, read, trainer

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.phases import Tag
from trainperf.lightning import TrainPerf


FORWARD = 2 * 2 * 4 * 1
"""FLOPs of the model's layer for a batch: two rows of four."""


def fitted(tmp_path: Path, at: int | None = 3, *, steps: int = 6, **options: Any) -> Path:
    """The run directory of a fit with an audit."""
    perf = TrainPerf(audit_at=at, report=False)
    trainer(tmp_path, perf, **options).fit(Model(), Loader(steps))
    return tmp_path / "trainperf"


def audit_in(run: Path) -> StepAudit:
    """The audit of a run that has one."""
    audit = read_document(StepAudit, run)
    assert audit is not None
    return audit


def test_the_audit_sees_forward_backward_and_update_with_their_modules(tmp_path: Path) -> None:
    """The input requires no gradient: backward is one product."""
    audit = audit_in(fitted(tmp_path))

    matmuls = [use for use in audit.operators if use.kind == "matmul"]
    assert [(use.part, use.module, use.flops) for use in matmuls] == [
        ("forward", "Model.layer", FORWARD),
        ("backward", "Model.layer", FORWARD),
    ]
    assert audit.of(["optimizer"])
    assert {use.line.rpartition(":")[0].rpartition("/")[2] for use in matmuls if use.line} == {
        "fits.py"
    }


def test_every_micro_batch_of_the_step_is_audited(tmp_path: Path) -> None:
    """Two forward passes make one step of accumulation two; the fetch between them is left out."""
    run = fitted(tmp_path, at=1, steps=6, accumulate_grad_batches=2)

    audit = audit_in(run)
    assert audit.micro_batches == 2
    assert audit.model_flops == 2 * 2 * FORWARD
    assert read(run).tagged(Tag.AUDITED) == [1]


def test_without_being_asked_nothing_is_audited(tmp_path: Path) -> None:
    """And Lightning has no hook of ours to call before a batch."""
    perf = TrainPerf(report=False)
    hooks: list[object] = []
    model = Model()
    model.in_forward = lambda: hooks.append(perf.on_train_batch_start)
    trainer(tmp_path, perf).fit(model, Loader(4))

    assert read_document(StepAudit, tmp_path / "trainperf") is None
    assert hooks == [None] * 4


def test_after_the_audit_its_hook_is_gone(tmp_path: Path) -> None:
    """The steps behind it cost what they would have."""
    perf = TrainPerf(audit_at=1, report=False)
    modes: list[int] = []
    hooks: list[bool] = []
    model = Model()

    def look() -> None:
        modes.append(torch._C._len_torch_dispatch_stack())
        hooks.append(perf.on_train_batch_start is None)

    model.in_forward = look
    trainer(tmp_path, perf).fit(model, Loader(4))

    assert [bool(mode) for mode in modes] == [False, True, False, False]
    assert hooks == [False, False, False, True]


def test_a_fit_that_is_audited_trains_as_one_that_is_not(tmp_path: Path) -> None:
    """The same weights, bit by bit."""
    weights = []
    for at in (None, 2):
        torch.manual_seed(0)
        model = Model()
        perf = TrainPerf(audit_at=at, report=False)
        trainer(tmp_path, perf).fit(model, Loader(5))
        weights.append(model.layer.weight.detach().clone())

    assert torch.equal(*weights)


def test_an_exception_during_the_audited_step_leaves_no_mode_behind(tmp_path: Path) -> None:
    """What the user runs next is not audited."""
    model = Model()

    def fail() -> None:
        raise ValueError("theirs")

    model.in_forward = fail
    with pytest.raises(ValueError, match="theirs"):
        trainer(tmp_path, TrainPerf(audit_at=0, report=False)).fit(model, Loader(3))

    assert torch._C._len_torch_dispatch_stack() == 0
    assert read_document(StepAudit, tmp_path / "trainperf") is None


class Odd(torch.nn.Linear):
    """Cannot be walked from a name, so that the audit trips over it."""

    def named_modules(self, memo: Any = None, prefix: str = "", **options: Any) -> Any:
        """Only the audit asks with a prefix here."""
        if prefix:
            raise RuntimeError("no names today")
        return super().named_modules(memo, prefix, **options)


class Hiding(Model):
    """Uses a module that it does not own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [Odd(4, 4)]

    def loss(self, batch: Any) -> torch.Tensor:
        """Through the hidden one."""
        return super().loss(self.hidden[0](batch))


def test_a_fault_of_the_audit_does_not_stop_training(tmp_path: Path) -> None:
    """It is switched off, all steps are recorded, and the fault is in the file."""
    trainer(tmp_path, TrainPerf(audit_at=3, report=False)).fit(Hiding(), Loader(6))

    ran = read(tmp_path / "trainperf")
    assert len(ran.steps) == 6
    assert ran.totals is not None
    assert "no names today" in ran.totals.faults["audit"]
    assert read_document(StepAudit, tmp_path / "trainperf") is None
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_hook_of_a_subclass_is_still_called_for_every_batch(tmp_path: Path) -> None:
    """Before, during and after the audit."""

    class Mine(TrainPerf):
        heard = 0

        def on_train_batch_start(self, *hook: object) -> None:
            """Count."""
            self.heard += 1

    mine = Mine(audit_at=1, report=False)
    trainer(tmp_path, mine).fit(Model(), Loader(4))

    assert mine.heard == 4
    assert audit_in(tmp_path / "trainperf").step == 1
