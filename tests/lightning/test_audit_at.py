"""One step of a fit is audited: written once, tagged, and nothing else of the fit changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, trainer

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit
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


@pytest.mark.parametrize(("at", "audited"), [(1, 1), (None, -1)])
def test_after_the_audit_its_hook_is_gone(tmp_path: Path, at: int | None, audited: int) -> None:
    """The steps behind it cost what they would have; without one there is none."""
    perf = TrainPerf(audit_at=at, report=False)
    modes: list[int] = []
    hooks: list[bool] = []
    model = Model()

    def look() -> None:
        modes.append(torch._C._len_torch_dispatch_stack())
        hooks.append(perf.on_train_batch_start is None)

    model.in_forward = look
    trainer(tmp_path, perf).fit(model, Loader(4))

    assert [bool(mode) for mode in modes] == [step == audited for step in range(4)]
    assert hooks == [step > audited + 1 or at is None for step in range(4)]


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
