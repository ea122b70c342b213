"""FLOPs of single operators against the formula, forward and backward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainperf.audit import audit_step
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.groups import summed


META = torch.device("meta")


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    """A tensor with a shape and nothing in it."""
    return torch.empty(shape, dtype=dtype, device=META, requires_grad=grad)


def contractions(audit: StepAudit) -> dict[str, int]:
    """FLOPs of contractions by part, where there are any."""
    return summed((use.part, use.matmul_flops) for use in audit.operators if use.matmul_flops)


@pytest.mark.parametrize(
    ("compute", "flops"),
    [
        (lambda: meta(3, 5) @ meta(5, 7), 2 * 3 * 5 * 7),
        (lambda: torch.addmm(meta(7), meta(3, 5), meta(5, 7)), 2 * 3 * 5 * 7),
        (lambda: torch.bmm(meta(4, 3, 5), meta(4, 5, 7)), 4 * 2 * 3 * 5 * 7),
        (lambda: torch.baddbmm(meta(4, 3, 7), meta(4, 3, 5), meta(4, 5, 7)), 4 * 2 * 3 * 5 * 7),
        (lambda: torch.addbmm(meta(3, 7), meta(4, 3, 5), meta(4, 5, 7)), 4 * 2 * 3 * 5 * 7),
        (lambda: torch.mv(meta(3, 5), meta(5)), 2 * 3 * 5),
        (lambda: torch.addmv(meta(3), meta(3, 5), meta(5)), 2 * 3 * 5),
        (lambda: torch.dot(meta(5), meta(5)), 2 * 5),
        (lambda: torch.addr(meta(3, 5), meta(3), meta(5)), 2 * 3 * 5),
        (
            lambda: functional.conv2d(meta(2, 3, 8, 8), meta(16, 3, 3, 3), padding=1),
            2 * 2 * 16 * 8 * 8 * 3 * 3 * 3,
        ),
    ],
)
def test_a_contraction_counts_two_flops_per_product(
    compute: Callable[[], Tensor], flops: int
) -> None:
    """A multiply and an add for each, as the textbook has it."""
    assert audit_step(compute).model_flops == flops


CONVOLUTION = 2 * 2 * 16 * 8 * 8 * 27
GATES = 2 * (2 * 5) * 4 * 16 * (8 + 16)
"""Four gates, each of the input and of the hidden state, at every position."""


@pytest.mark.parametrize(
    ("compute", "forward", "backward"),
    [
        # A gradient for each of the two operands.
        (lambda: meta(3, 5, grad=True) @ meta(5, 7, grad=True), 210, 420),
        # The images of the first layer require none.
        (
            lambda: nn.Conv2d(3, 16, 3, padding=1)(torch.ones(2, 3, 8, 8)),
            CONVOLUTION,
            CONVOLUTION,
        ),
        (lambda: nn.LSTM(8, 16, batch_first=True)(torch.ones(2, 5, 8))[0], GATES, 2 * GATES),
    ],
)
def test_backward_counts_a_product_for_each_gradient_that_is_needed(
    compute: Callable[[], Tensor], forward: int, backward: int
) -> None:
    """And nothing of it is not counted."""
    audit = audit_step(lambda: compute().sum().backward())

    assert contractions(audit) == {"forward": forward, "backward": backward}
    assert audit.uncounted == ()


@pytest.mark.parametrize("width", [16, 8])
def test_attention_on_the_cpu_counts_scores_and_values(width: int) -> None:
    """Torch has no formula for it: 4·B·H·T²·D, and twice that in backward."""
    query, key, value = (torch.ones(2, 4, 32, width, requires_grad=True) for _ in range(3))
    forward = 2 * 2 * 4 * 32 * 32 * 2 * width

    audit = audit_step(
        lambda: functional.scaled_dot_product_attention(query, key, value).sum().backward()
    )

    names = {use.name for use in audit.operators if use.kind == "matmul"}
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in names
    assert audit.model_flops == 3 * forward
    # Flash attention keeps no scores and computes them again: hardware FLOPs, not model FLOPs.
    assert audit.hardware_flops == 3 * forward + forward // 2


@pytest.mark.parametrize(
    ("compute", "flops"),
    [
        (lambda: meta(10) + meta(10), 10),
        (lambda: meta(10, 1) * meta(1, 20), 200),
        (lambda: meta(3, 10).sum(), 30),
        (lambda: torch.addcmul(meta(10), meta(10), meta(10)), 20),
        (lambda: meta(3, 10).softmax(-1), 5 * 30),
        (lambda: meta(10).to(torch.bfloat16), 0),
        (lambda: functional.layer_norm(meta(3, 10), (10,)), 4 * 30),
        (lambda: functional.layer_norm(meta(3, 10), (10,), meta(10), meta(10)), 6 * 30),
    ],
)
def test_elementwise_work_counts_its_primitive_operations(
    compute: Callable[[], Tensor], flops: int
) -> None:
    """Beside the contractions: it is no model FLOP."""
    audit = audit_step(compute)

    assert sum(use.flops for use in audit.operators) == flops
    assert audit.model_flops == 0


def test_an_operator_without_a_formula_is_named() -> None:
    """Its arithmetic counts as none, and the audit says so."""
    audit = audit_step(lambda: torch.linalg.qr(torch.eye(4)))

    assert audit.uncounted == ("aten.linalg_qr.default",)
