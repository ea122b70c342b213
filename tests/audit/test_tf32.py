"""What fp32 means in a product, by torch's older and newer switches."""

from collections.abc import Iterator

import pytest
import torch

from trainperf.audit.chip_benchmark import _products_of_fp32


@pytest.fixture
def chosen(request: pytest.FixtureRequest) -> Iterator[str]:
    """A user's choice by the older switch, undone afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield str(request.param)
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("chosen", ["highest", "high"], indirect=True)
@pytest.mark.parametrize(("asked", "allowed"), [("tf32", True), ("ieee", False)])
def test_a_probe_computes_in_what_it_says_and_leaves_the_users_choice(
    chosen: str,
    asked: str,
    allowed: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """Else a peak in TF32 would stand in the row of fp32."""
    before = torch.backends.cuda.matmul.allow_tf32

    with _products_of_fp32(asked):
        switch = torch.backends.cuda.matmul
        # Torch before 2.9 has only the older switch; reading it is an error once both were used.
        newer = hasattr(switch, "fp32_precision")
        during = switch.fp32_precision == "tf32" if newer else switch.allow_tf32

    assert during is allowed
    assert torch.get_float32_matmul_precision() == chosen
    assert torch.backends.cuda.matmul.allow_tf32 is before is (chosen == "high")
