"""A step's fused attention is timed again, in both precisions."""

import msgspec
import pytest
from support.audits import CHIP, product
from support.light import make_audit

from trainperf.audit.attention_times import time_attention


FAST = msgspec.structs.replace(CHIP, flops_per_s={"fp32": 1e12, "bf16": 4e12})
HEADS = ((1, 2, 8, 4), (1, 2, 6, 4), (1, 2, 6, 3))
NAME = "_scaled_dot_product_flash_attention_for_cpu"


def test_each_size_is_timed_in_both_precisions() -> None:
    """Once, however many places call it; products are none."""
    fused = product(NAME, 1.0, shapes=HEADS)
    again = msgspec.structs.replace(fused, line="net.py:8")

    (size,) = time_attention(make_audit(product("mm", 5.0), fused, again), FAST)
    assert size.shapes == HEADS
    assert size.seconds.keys() == {"fp32", "bf16"}
    assert min(size.seconds.values()) > 0


@pytest.mark.parametrize(
    ("fields", "device"),
    [
        ({"precision": "bf16"}, "cpu"),
        ({"part": "backward"}, "cpu"),
        ({"shapes": ((1, 4, 8, 4), *HEADS[1:])}, "cpu"),
        ({}, "cuda"),
    ],
)
def test_nothing_else_is_repeated(fields: dict[str, object], device: str) -> None:
    """In bf16 already; a backward by itself; fewer heads for keys and values; another device."""
    fused = product(NAME, 1.0, **{"shapes": HEADS, **fields})

    assert time_attention(make_audit(fused, device=device), FAST) == ()


def test_attention_that_takes_long_or_gains_nothing_is_not_repeated() -> None:
    """A forward of a second; a chip that is no faster in bf16."""
    assert time_attention(make_audit(product(NAME, 1000.0, shapes=HEADS)), FAST) == ()
    assert time_attention(make_audit(product(NAME, 1.0, shapes=HEADS)), CHIP) == ()
