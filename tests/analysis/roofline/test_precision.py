"""What products would save in another precision."""

import msgspec
import pytest
from support.light import make_use

from trainperf.analysis.roofline.precision import Products
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.machine.chips import Chip


CHIP = Chip(
    name="made up",
    flops_per_s={"fp32": 1e12, "tf32": 4e12, "bf16": 4e12},
    memory_bytes_per_s=1e9,
    link_bytes_per_s=None,
    launch_s=0.0,
    source="this test",
)


def product(part: str = "backward", precision: str = "fp32") -> OperatorUse:
    """One of 1000 × 1000 matrices."""
    use = make_use(name="aten.mm.default", kind="matmul", precision=precision)
    return msgspec.structs.replace(use, part=part, shapes=((1000, 1000), (1000, 1000)))


@pytest.mark.parametrize(
    ("use", "compute_s", "precision", "saved_s"),
    [
        # Of 8 ms in fp32 a quarter is left.
        (product(), 8e-3, "bf16", 6e-3),
        # Without autocast a product of bf16 takes four times as long.
        (product(precision="bf16"), 2e-3, "fp32", -6e-3),
        # Two million elements of six bytes there and back, at 1 GB/s, take 24 ms.
        (product("forward"), 8e-3, "bf16", 6e-3 - 24e-3),
        (product("forward"), 8e-3, "tf32", 6e-3),
        # Its peak is not guessed.
        (product(), 8e-3, "fp16", 0.0),
    ],
)
def test_arithmetic_gets_faster_as_the_peaks_are_and_conversions_count(
    use: OperatorUse, compute_s: float, precision: str, saved_s: float
) -> None:
    """On a host as on a device."""
    for on_host in (True, False):
        products = Products(chip=CHIP, on_host=on_host)
        assert products.saved_s(use, compute_s, precision) == pytest.approx(saved_s)


@pytest.mark.parametrize(
    ("run_s", "arithmetic", "peaks", "left_s"),
    [
        # Ten calls of 0.1 ms stay; of 20 ms beside them half the bytes, or what the peaks say.
        (21e-3, False, {"fp64": 1e12, "fp32": 4e12}, 11e-3),
        (21e-3, True, {"fp64": 1e12, "fp32": 4e12}, 6e-3),
        (21e-3, True, {"fp32": 4e12}, 11e-3),
        # Nothing but calls.
        (0.5e-3, True, {"fp64": 1e12, "fp32": 4e12}, 0.5e-3),
    ],
)
def test_in_single_precision_calls_stay_and_the_rest_keeps_its_distance_from_the_roofline(
    run_s: float,
    arithmetic: bool,  # noqa: FBT001 a parameter
    peaks: dict[str, float],
    left_s: float,
) -> None:
    """So a step of small products gains less than one of large ones."""
    chip = msgspec.structs.replace(CHIP, flops_per_s=peaks, launch_s=1e-4)
    use = msgspec.structs.replace(product(precision="fp64"), calls=10)
    products = Products(chip=chip, on_host=True)
    assert products.in_single_s(use, run_s, arithmetic=arithmetic) == pytest.approx(left_s)


@pytest.mark.parametrize(
    ("peaks", "name"),
    [
        ({"fp32": 1e12, "tf32": 4e12, "bf16": 8e12}, "tf32"),
        ({"fp32": 1e12, "bf16": 2e12}, "bf16"),
        ({"fp32": 1e12, "bf16": 1.9e12}, None),
        ({"bf16": 1e12}, None),
    ],
)
def test_the_least_different_precision_that_is_twice_as_fast_is_taken(
    peaks: dict[str, float], name: str | None
) -> None:
    """Others would lose more digits than they have to."""
    chip = msgspec.structs.replace(CHIP, flops_per_s=peaks)

    assert Products(chip=chip, on_host=False).faster_than_fp32() == name
