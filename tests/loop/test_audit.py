"""One step of a plain loop is audited: the same file as under Lightning."""

from pathlib import Path

import pytest
import torch
from support.loops import Loader, Sleeper, quiet

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit


FORWARD = 2 * 2 * 4 * 4
"""FLOPs of the layer for a batch: two rows of four, to four."""


def audited_now() -> bool:
    """Whether a dispatch mode is on."""
    return torch._C._len_torch_dispatch_stack() > 0


class Loop:
    """Trains a linear layer, and knows when a dispatch mode is on."""

    def __init__(self, path: Path, at: int | None = 2) -> None:
        self.monitor = quiet(path, audit_at=at)
        self.model = torch.nn.Linear(4, 4)
        self.modes: list[bool] = []

    def __call__(self, steps: int = 5, *, accumulate: int = 1) -> Path:
        """So many steps of so many micro-batches each; the run."""
        with self.monitor.watch(self.model) as monitor:
            batches = monitor.batches(Loader(Sleeper(), steps * accumulate))
            for number, batch in enumerate(batches):
                self.modes.append(audited_now())
                with monitor.phase("forward"):
                    loss = self.model(batch["x"]).sum()
                with monitor.phase("backward"):
                    loss.backward()
                if number % accumulate == accumulate - 1:
                    monitor.end_step(loss)
        return self.monitor.run


def audit_in(run: Path) -> StepAudit:
    """The audit of a run that has one."""
    return read_document(StepAudit, run)


def test_every_micro_batch_of_the_step_is_audited(tmp_path: Path) -> None:
    """The fetch between them is not."""
    loop = Loop(tmp_path, at=1)
    audit = audit_in(loop(3, accumulate=2))

    assert loop.modes == [False, False, True, True, False, False]
    assert audit.micro_batches == 2
    assert audit.model_flops == 4 * FORWARD


def test_a_validation_in_the_middle_of_the_step_is_no_part_of_it(tmp_path: Path) -> None:
    """The audit stops for it and goes on after it."""
    loop = Loop(tmp_path, at=0)
    with loop.monitor.watch(loop.model) as monitor:
        for batch in monitor.batches(Loader(Sleeper(), 2)):
            loss = loop.model(batch["x"]).sum()
            with monitor.phase("validation"):
                loop.modes.append(audited_now())
                loop.model(batch["x"])
            loop.modes.append(audited_now())
            loss.backward()
            monitor.end_step(loss)

    assert loop.modes == [False, True, False, False]
    assert audit_in(monitor.run).model_flops == 2 * FORWARD


def test_a_loop_that_is_left_in_the_audited_step_leaves_no_mode_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By an exception; and it is said that nothing was audited."""
    loop = Loop(tmp_path, at=0)

    def fail() -> None:
        with loop.monitor as monitor:
            for _ in monitor.batches(Loader(Sleeper(), 2)):
                raise ValueError("theirs")

    with pytest.raises(ValueError, match="theirs"):
        fail()

    assert not audited_now()
    assert read_document(StepAudit, loop.monitor.run) is None
    assert "no step was audited" in caplog.text
