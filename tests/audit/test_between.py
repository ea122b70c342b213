"""What passes between the operators of an audited step, and whose they are."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from support.fits import QUIET, Loader, Model

from trainperf.audit import audit_step
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import OperatorUse, StepAudit
from trainperf.lightning import TrainPerf


LONG_S = 0.05


class Logging(Model):
    """Logs ten values, and looks at its output without a gradient."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss."""
        loss = super().training_step(batch, batch_idx)
        for number in range(10):
            self.log(f"value{number}", loss)
        with torch.no_grad():
            self.layer.weight.argmax()
        return loss


def fitted(path: Path, model: Model) -> StepAudit:
    """The audit of one step of a fit."""
    perf = TrainPerf(dirpath=str(path), audit_at=1, report=False)
    pl.Trainer(**QUIET, callbacks=[perf]).fit(model, Loader(3))
    return read_document(StepAudit, path / "trainperf")


def named(audit: StepAudit, name: str) -> list[OperatorUse]:
    """Rows of one operator."""
    return [use for use in audit.operators if name in use.name]


def test_what_passes_before_an_operator_is_its_own() -> None:
    """Python between two operators, whatever it does, and no more than that."""
    rows = torch.ones(3)

    def step() -> None:
        rows.exp()
        time.sleep(LONG_S)
        rows.sin()
        rows.cos()

    audit = audit_step(step)

    assert named(audit, "exp")[0].before_s == 0.0
    assert named(audit, "sin")[0].before_s >= LONG_S
    assert named(audit, "cos")[0].before_s < LONG_S


def test_views_are_a_part_of_what_passes() -> None:
    """They move nothing, and a loop of them costs all the same."""
    rows = torch.ones(3, 3)

    def step() -> None:
        rows.exp()
        time.sleep(LONG_S)
        rows.t().cos()

    assert named(audit_step(step), "cos")[0].before_s >= LONG_S


def test_another_part_of_the_step_begins_anew() -> None:
    """What lies between backward and the update is neither's."""
    rows = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([rows], 0.1)

    def step() -> None:
        rows.exp().sum().backward()
        time.sleep(LONG_S)
        optimizer.step()

    assert all(use.before_s < LONG_S for use in audit_step(step).operators)


def test_operators_of_logging_are_told_apart(tmp_path: Path) -> None:
    """By whose frames called them; the line is the user's."""
    audit = fitted(tmp_path, Logging())

    logging = [use for use in audit.operators if use.logs]
    lines = {use.line for use in logging}
    assert len(lines) == 1
    assert "test_between.py" in str(lines.pop())
    assert sum(use.calls for use in logging) >= 10
    assert not any(use.logs for use in named(audit, "mm"))
