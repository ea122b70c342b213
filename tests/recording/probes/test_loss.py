"""The loss of every step: copied, never waited for."""

import math
import weakref

import pytest
import torch
from support.live import HostFit

from trainperf.recording.probes.loss import LossProbe
from trainperf.testing import FakeClock, SimulatedDevice


def losses(*values: object, log_every: int = 50, scale: float = 1.0) -> HostFit:
    """A fit of one step per loss."""
    fit = HostFit(LossProbe(scale=scale), log_every=log_every)
    for value in values:
        fit.micro_batch(None, value)
    return fit.finish()


def scalar(**options: object) -> torch.Tensor:
    """A loss of one and a half."""
    return torch.tensor(1.5, **options)  # type: ignore[arg-type]


TWENTY = [torch.tensor(float(number)) for number in range(20)]

CASES: dict[str, tuple[list[object], dict[str, float], list[float | None]]] = {
    # Although the open step's row is sealed with the group before its own.
    **{f"flushed every {n}": (TWENTY, {"log_every": n}, [*range(20)]) for n in (1, 2, 50)},
    "undoes what Lightning has divided by": ([torch.tensor(0.5)], {"scale": 4.0}, [2.0]),
    "made in inference mode": ([torch.inference_mode()(scalar)()], {}, [1.5]),
    "one-dimensional": ([torch.tensor([1.5])], {}, [1.5]),
    "two-dimensional": ([torch.tensor([[1.5]])], {}, [1.5]),
    "double": ([scalar(dtype=torch.float64)], {}, [1.5]),
    "bfloat16": ([scalar(dtype=torch.bfloat16)], {}, [1.5]),
    "with a graph": ([scalar(requires_grad=True) * 1], {}, [1.5]),
    "among outputs": ([{"loss": scalar(), "logits": torch.zeros(9)}], {}, [1.5]),
    "a number": ([1.5], {}, [1.5]),
    # `training_step` may return nothing.
    "none": ([None, torch.zeros(3), {"logits": 1}, "1.5", object()], {}, [None] * 5),
    # Never NaN in a file; the steps around it keep theirs.
    "not finite": (
        [1.0, torch.tensor(math.nan), math.inf, -math.inf, 2.0],
        {},
        [1, *[None] * 3, 2],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_step_has_its_own_loss(case: str) -> None:
    """In whatever form it comes: one number, or none."""
    values, options, expected = CASES[case]
    fit = losses(*values, **options)  # type: ignore[arg-type]

    assert fit.facts("loss") == expected
    assert fit.monitor.guard.faults == {}


def test_a_loss_is_known_when_the_step_ends() -> None:
    """The loop may overwrite the tensor in place."""
    fit, loss = HostFit(LossProbe()), torch.zeros(())
    for number in range(5):
        loss.fill_(number)
        fit.micro_batch(None, loss)
    fit.finish()

    assert fit.facts("loss") == [0, 1, 2, 3, 4]


def test_no_graph_is_kept() -> None:
    """Or fifty steps' activations would stay in memory."""
    fit, weight = HostFit(LossProbe()), torch.ones(8, requires_grad=True)
    freed = []
    loss = (weight * 2).sum()
    weakref.finalize(loss, freed.append, True)
    fit.micro_batch(None, loss)
    del loss

    assert freed == [True]
    fit.finish()
    assert fit.facts("loss") == [16]


def test_the_last_micro_batch_holds() -> None:
    """Over the seal between them."""
    fit = HostFit(LossProbe(), log_every=1)
    for number in range(9):
        fit.micro_batch(None, torch.tensor(float(number)), complete=number % 3 == 2)
    fit.finish()

    assert fit.facts("loss") == [2, 5, 8]


def test_a_flush_in_the_middle_of_a_group_changes_nothing() -> None:
    """A checkpoint writes everything, and the group goes on."""
    fit = HostFit(LossProbe())
    for number in range(6):
        fit.micro_batch(None, torch.tensor(float(number)), complete=number % 3 == 2)
        fit.monitor.settled_progress()
    fit.finish()

    assert fit.facts("loss") == [2, 5]


def test_beside_a_device_a_loss_on_the_host_is_read_with_its_group() -> None:
    """It may be a copy that is still on its way when the step ends."""
    fit = HostFit(LossProbe(device=SimulatedDevice(FakeClock())), log_every=3)
    arriving = [torch.zeros(()) for _ in range(6)]
    for number, loss in enumerate(arriving):
        fit.micro_batch(None, loss)
        loss.fill_(number)  # now it has come
    fit.finish()

    assert fit.facts("loss") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        ([7, 8, 9], "not finite since step 7 (3 steps)"),
        ([9], "not finite since step 9 (1 step)"),
        ([2, 3, 8, 9], "not finite in 4 steps, first in step 2 and in every step since 8"),
        ([2, 3], ""),
    ],
)
def test_a_loss_that_ends_as_no_number_says_since_when_and_in_how_many_steps(
    bad: list[int], note: str
) -> None:
    """The steps of an earlier lapse are not those since the last one began."""
    fit = losses(*(torch.tensor(math.nan if step in bad else 1.0) for step in range(10)))

    assert fit.totals.notes.get("loss", "") == note
