"""What a batch is: its samples, and what a transfer has to move."""

from collections import UserDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from support.live import HostFit

from trainperf.audit.nested import tensors
from trainperf.recording.probes.batches import SamplesProbe, TransferProbe


class Pair(NamedTuple):
    """A batch as a named tuple."""

    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Sample:
    """A batch as a class of the user's own."""

    x: torch.Tensor
    name: str = "a"


X, Y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        (X, 1),
        ((X, Y), 2),
        ([X, [Y, (X,)]], 3),
        ({"x": X, "more": {"y": Y}, "name": "b", "n": 3}, 2),
        (UserDict(x=X), 1),
        (Pair(X, Y), 2),
        (Sample(X), 1),
        ([Sample(X), Sample(Y)], 2),
        (None, 0),
        ("text", 0),
        (7, 0),
        (torch.nn.Linear, 0),
    ],
)
def test_tensors_are_found_wherever_they_are(batch: object, number: int) -> None:
    """Nested mappings, sequences and objects; nothing else is looked into."""
    assert len(list(tensors(batch))) == number


def test_samples_are_the_leading_dimension() -> None:
    """Summed over the micro-batches of a step."""
    fit = HostFit(SamplesProbe())
    fit.micro_batch({"x": X, "y": Y}, complete=False)
    fit.micro_batch(torch.zeros(2, 9), complete=True)
    fit.micro_batch(X)
    fit.finish()

    assert fit.facts("samples") == [6, 4]


@pytest.mark.parametrize("batch", [None, torch.zeros(()), "text"])
def test_a_batch_without_a_leading_dimension_has_no_samples(batch: object) -> None:
    """Not zero: not measured, with the reason."""
    fit = HostFit(SamplesProbe()).micro_batch(batch).finish()

    assert fit.facts("samples") == [None]
    assert "no tensor" in fit.totals.reasons["samples"]


def test_a_transfer_is_bytes_and_tensors() -> None:
    """Many small copies are slow ones, so both are counted."""
    fit = HostFit(TransferProbe())
    fit.micro_batch({"x": X, "y": Y}, complete=False)
    fit.micro_batch({"x": X})
    fit.micro_batch("nothing")
    fit.finish()

    assert fit.facts("h2d_bytes") == [2 * 48 + 32, 0]
    assert fit.facts("h2d_tensors") == [3, 0]


def test_a_batch_that_contains_itself_disables_this_meter_only() -> None:
    """A graph with a way back to its batch."""
    sample = Sample(X)
    sample.name = sample  # type: ignore[assignment]
    fit = HostFit(TransferProbe(), SamplesProbe())
    fit.micro_batch(sample).micro_batch(X).finish()

    assert list(fit.monitor.guard.faults) == ["transfer"]
    assert fit.facts("samples") == [4, 4]
