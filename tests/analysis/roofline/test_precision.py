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


def test_arithmetic_gets_faster_as_the_peaks_are() -> None:
    """Of 8 ms in fp32 a quarter is left."""
    products = Products(chip=CHIP, on_host=True)

    assert products.saved_s(product(), 8e-3, "bf16") == pytest.approx(6e-3)


def test_a_wider_precision_takes_longer() -> None:
    """Without autocast a product of bf16 takes four times as long."""
    products = Products(chip=CHIP, on_host=False)

    assert products.saved_s(product(precision="bf16"), 2e-3, "fp32") == pytest.approx(-6e-3)


def test_conversions_of_a_forward_count_against_bf16_and_not_against_tf32() -> None:
    """Two million elements of six bytes there and back, at 1 GB/s, take 24 ms."""
    products, use = Products(chip=CHIP, on_host=False), product("forward")

    saved_s = [products.saved_s(use, 8e-3, precision) for precision in ("bf16", "tf32")]

    assert saved_s == pytest.approx([6e-3 - 24e-3, 6e-3])


def test_a_precision_without_a_known_peak_saves_nothing() -> None:
    """It is not guessed."""
    assert Products(chip=CHIP, on_host=False).saved_s(product(), 8e-3, "fp16") == 0.0


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
