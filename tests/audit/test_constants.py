"""Results that are the same in every step: made of numbers alone, never of a batch or a weight."""

from collections.abc import Callable

import pytest
import torch

from trainperf.audit import Audit, audit_step
from trainperf.core.artifacts.audit import OperatorUse


GIVEN = torch.ones(4, 4)


def constant(step: Callable[[], object]) -> dict[str, bool]:
    """Short name of each operator of a step to whether it is constant."""
    return {short(use): use.constant for use in audit_step(step).operators}


def short(use: OperatorUse) -> str:
    """E.g. `add`."""
    return use.name.split(".")[1]


def test_a_mask_built_from_numbers_is_constant() -> None:
    """And so is everything that is computed from it alone."""

    def step() -> None:
        mask = torch.ones(4, 4).triu(1)
        (mask * -1e9).exp()

    assert constant(step) == {"ones": True, "triu": True, "mul": True, "exp": True}


def test_what_is_older_than_the_step_is_not() -> None:
    """Nor what is computed from both."""

    def step() -> None:
        (torch.arange(4) + GIVEN).neg()

    assert constant(step) == {"arange": True, "add": False, "neg": False}


def test_what_is_drawn_at_random_is_not() -> None:
    """It differs from step to step."""
    assert constant(lambda: torch.rand(4).neg()) == {"rand": False, "neg": False}


def test_a_constant_that_is_written_over_is_one_no_more() -> None:
    """A buffer of zeros into which a batch is put."""

    def step() -> None:
        buffer = torch.zeros(4, 4)
        buffer[0].copy_(GIVEN[0])
        buffer.neg()

    assert constant(step) == {"zeros": True, "copy_": False, "neg": False}


def test_a_number_put_into_older_memory_makes_no_constant_of_it() -> None:
    """The other rows are what they were."""
    old = torch.ones(4, 4)

    def step() -> None:
        old[0].fill_(2.0)
        old.neg()

    assert constant(step) == {"fill_": False, "neg": False}


@pytest.mark.parametrize("make", [lambda: torch.tensor([1.0, 2.0]), lambda: torch.empty(2)])
def test_what_comes_from_python_or_from_nowhere_is_not(make: Callable[[], torch.Tensor]) -> None:
    """Even where it takes the memory of a constant that is gone."""

    def step() -> None:
        torch.arange(2.0)
        make().neg()

    assert constant(step)["neg"] is False


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
