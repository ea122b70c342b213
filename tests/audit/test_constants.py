"""Results that are the same in every step: made of numbers alone, never of a batch or a weight."""

from collections.abc import Callable

import pytest
import torch

from trainperf.audit import Audit, audit_step
from trainperf.core.artifacts.audit import OperatorUse


GIVEN, OLD = torch.ones(4, 4), torch.ones(4, 4)


def short(use: OperatorUse) -> str:
    """E.g. `add`."""
    return use.name.split(".")[1]


def mask() -> None:
    """A mask built from numbers, and what is computed from it alone."""
    (torch.ones(4, 4).triu(1) * -1e9).exp()


def filled() -> None:
    """A buffer of zeros into which a batch is put."""
    buffer = torch.zeros(4, 4)
    buffer[0].copy_(GIVEN[0])
    buffer.neg()


def older() -> None:
    """A number put into older memory: the other rows are what they were."""
    OLD[0].fill_(2.0)
    OLD.neg()


def from_python() -> None:
    """Numbers of Python, where they take the memory of a constant that is gone."""
    torch.arange(2.0)
    torch.tensor([1.0, 2.0]).neg()


def from_nowhere() -> None:
    """Memory that nobody has filled, where a constant was."""
    torch.arange(2.0)
    torch.empty(2).neg()


STEPS: list[tuple[Callable[[], object], dict[str, bool]]] = [
    (mask, {"ones": True, "triu": True, "mul": True, "exp": True}),
    # What is older than the step, and what is computed from both.
    (lambda: -(torch.arange(4) + GIVEN), {"arange": True, "add": False, "neg": False}),
    # What is drawn at random differs from step to step.
    (lambda: torch.rand(4).neg(), {"rand": False, "neg": False}),
    (filled, {"zeros": True, "copy_": False, "neg": False}),
    (older, {"fill_": False, "neg": False}),
    (from_python, {"neg": False}),
    (from_nowhere, {"neg": False}),
]


@pytest.mark.parametrize(("step", "constant"), STEPS)
def test_what_is_made_of_numbers_alone_is_constant(
    step: Callable[[], object], constant: dict[str, bool]
) -> None:
    """Each operator of a step, by its short name."""
    found = {short(use): use.constant for use in audit_step(step).operators}

    assert found | constant == found


def test_between_two_micro_batches_everything_is_forgotten() -> None:
    """The next batch may lie where a constant was."""
    audit = Audit()
    with audit:
        kept = torch.arange(4)
    with audit:
        kept.neg()

    assert {short(use): use.constant for use in audit.result().operators} == {
        "arange": True,
        "neg": False,
    }
