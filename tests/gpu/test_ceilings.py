"""What a large product and a large copy reach, beside the data sheet: the floors stand on it."""

from collections.abc import Iterator

import pytest
import torch
from support.gpu import DEVICE, SIMULATED

from trainperf.audit.chip_benchmark import device_name, probe
from trainperf.core.machine.chips import Chip, chip_of


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(SIMULATED, reason="needs a CUDA device")]


@pytest.fixture
def allowed() -> Iterator[None]:
    """A user who lets fp32 be computed in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def row() -> Chip:
    """The table's, for this device."""
    known = chip_of(device_name(torch.device(DEVICE)))
    if known is None:
        pytest.skip(f"{device_name(torch.device(DEVICE))} has no row in the table of chips")
    return known


def test_measured_ceilings_are_below_the_tables_and_not_far() -> None:
    """At most 5 % above a dense peak, and at least 30 % of it: a sparse figure would be twice."""
    known, measured = row(), probe(torch.device(DEVICE), budget_s=6.0)

    shares = {
        name: measured.flops_per_s[name] / peak
        for name, peak in known.flops_per_s.items()
        if name in measured.flops_per_s
    }
    shares["memory"] = measured.memory_bytes_per_s / known.memory_bytes_per_s
    assert {name for name, share in shares.items() if not 0.3 <= share <= 1.05} == set(), shares


def test_a_user_who_allows_tf32_does_not_change_what_fp32_reaches(allowed: None) -> None:
    """It stays below its own peak, and the user's choice is as it was."""
    measured = probe(torch.device(DEVICE), budget_s=3.0)

    assert measured.flops_per_s["fp32"] <= 1.05 * row().flops_per_s["fp32"]
    assert torch.get_float32_matmul_precision() == "high"
