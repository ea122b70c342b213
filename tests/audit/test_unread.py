"""Fields of a batch of which no operator reads a value, in audits of real steps."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainperf.audit import Audit


def batch() -> dict[str, Any]:
    """Two fields of 64 bytes, and what is no tensor."""
    return {"x": torch.ones(16), "y": torch.ones(16), "id": "a"}


def unread(step: Callable[[Any], object], *batches: Any) -> dict[str, int]:
    """In one step of these batches."""
    audit = Audit()
    for given in batches:
        with audit:
            step(given)
        audit.batch_trained(given)
    return audit.result().unread


def copied(given: dict[str, Any]) -> object:
    """Both are copied and one copy is used, as where a loop moves its batch to a device."""
    own = {name: given[name].to(torch.float64) for name in "xy"}
    own["y"] = own["y"].clone()
    return own["x"].sum()


def copy_used(given: dict[str, Any]) -> object:
    """Of the copy of a copy, in place, of a view."""
    buffer = torch.empty(4, 4)
    buffer.copy_(given["y"].view(4, 4).clone())
    return buffer[1:].mul_(given["x"].sum())


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (lambda given: given["x"].sum(), {"['y']"}),
        (lambda given: given["x"] * given["y"], set()),
        (lambda given: given["x"].sum() * given["y"].shape[0], {"['y']"}),
        (lambda given: given["x"] + torch.zeros_like(given["y"]), {"['y']"}),
        (lambda given: given["x"].sum() * given["y"].max().item(), set()),
        (lambda given: given["x"].copy_(given["y"]).sum(), {"['x']"}),
        (lambda given: (given["x"].sum(), given["y"].zero_()), {"['y']"}),
        (copied, {"['y']"}),
        (copy_used, set()),
        (lambda _: torch.ones(16).sum(), set()),
        (lambda given: given["x"].shape, set()),
    ],
    ids=[
        "one",
        "both",
        "its length",
        "its shape",
        "its number",
        "copied into the other",
        "written anew",
        "copied",
        "the copy is used",
        "something else is",
        "nothing is",
    ],
)
def test_a_field_is_read_where_an_operator_needs_a_value_of_it(
    step: Callable[[Any], object], found: set[str]
) -> None:
    """Or of a view or a copy of it, however often it was copied."""
    assert unread(step, batch()).keys() == found


def test_fields_are_named_as_code_has_them_and_only_if_no_batch_of_the_step_needs_them() -> None:
    """In tuples, attributes and mappings inside of each other, with their bytes."""

    def given(name: str) -> Any:
        views = {"near": torch.ones(4), "far": torch.ones(8)}
        return torch.ones(2), SimpleNamespace(views=views), name

    def step(given: Any) -> object:
        return given[0].sum() * given[1].views[given[2]].sum()

    assert unread(step, given("near")) == {"[1].views['far']": 32}
    assert unread(step, given("near"), given("near")) == {"[1].views['far']": 32}
    assert unread(step, given("near"), given("far")) == {}


def test_a_sparse_field_is_no_fault() -> None:
    """Nobody can say how many bytes it has by `nbytes`."""
    given = {"adj": torch.eye(2).to_sparse(), "x": torch.ones(2)}

    assert unread(lambda batch: batch["x"] + 1, given) == {}
