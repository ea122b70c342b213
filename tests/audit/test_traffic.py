"""Bytes that single operators read and write, and the classic intensities."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainperf.audit import audit_step
from trainperf.core.artifacts.audit import OperatorUse, StepAudit


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor with a shape and nothing in it."""
    return torch.empty(shape, dtype=dtype, device="meta")


def only(audit: StepAudit) -> OperatorUse:
    """The single row of an audit."""
    (use,) = audit.operators
    return use


def test_a_large_product_in_bf16_is_1365_flops_per_byte() -> None:
    """Three matrices of 4096² halves: 100.7 MB for 137 GFLOP."""
    left = meta(4096, 4096, dtype=torch.bfloat16)

    use = only(audit_step(lambda: left @ meta(4096, 4096, dtype=torch.bfloat16)))

    assert use.moved_bytes == 3 * 4096**2 * 2 == 100_663_296
    assert use.flops / use.moved_bytes == pytest.approx(4096 / 3)
    assert use.precision == "bf16"


def test_the_scores_of_attention_have_60_flops_per_byte_and_all_of_eager_attention_30() -> None:
    """32 heads of 2048 × 64 in fp16: 17.2 GFLOP for 285 MB of scores, queries and keys."""
    query, key, value = (meta(32, 2048, 64, dtype=torch.float16) for _ in range(3))

    def attend() -> Tensor:
        return torch.bmm(query, key.transpose(1, 2)).softmax(-1) @ value

    scores, _, _ = uses = audit_step(attend).operators

    assert scores.flops == 2 * 32 * 2048**2 * 64
    assert scores.moved_bytes == (2 * 32 * 2048 * 64 + 32 * 2048**2) * 2
    assert scores.flops / scores.moved_bytes == pytest.approx(60.2, abs=0.1)
    whole = sum(use.flops for use in uses) / sum(use.moved_bytes for use in uses)
    assert whole == pytest.approx(31.7, abs=0.1)


def test_views_and_allocations_move_nothing() -> None:
    """Nor do they appear as operators."""
    audit = audit_step(
        lambda: (
            torch.empty(8, 4).t().reshape(2, 16)[:, 3:].unsqueeze(0).detach() is not None
            and torch.ones(8).view(2, 4).expand(3, 2, 4)
        )
    )

    assert [use.name for use in audit.operators] == ["aten.clone.default", "aten.ones.default"]


ONE, OTHER = torch.ones(10), torch.ones(10)
TABLE, ROWS = torch.ones(1000, 16), torch.arange(5)


@pytest.mark.parametrize(
    ("compute", "read_bytes", "written_bytes"),
    [
        # A row that is expanded to a matrix is still one row in memory.
        (lambda: meta(100, 10) + meta(10), 4 * (1000 + 10), 4 * 1000),
        (lambda: meta(100, 10) + meta(1, 10).expand(100, 10), 4 * (1000 + 10), 4 * 1000),
        # A tensor that is given twice is read once.
        (lambda: ONE * ONE, 40, 40),
        # An update in place reads and writes; overwriting does not read what was there.
        (lambda: ONE.add_(OTHER), 80, 40),
        (lambda: ONE.copy_(OTHER), 40, 40),
        (ONE.zero_, 0, 40),
        (lambda: torch.mul(OTHER, 2.0, out=ONE), 40, 40),
        (lambda: torch.maximum(ONE, OTHER, out=ONE), 80, 40),
        # A look-up reads the rows that it looks up, not the whole table.
        (lambda: functional.embedding(ROWS, TABLE), 5 * 16 * 4 + 5 * 8, 5 * 16 * 4),
    ],
)
def test_an_operator_reads_and_writes_what_it_must(
    compute: Callable[[], Tensor], read_bytes: int, written_bytes: int
) -> None:
    """Each tensor once, as it is stored."""
    use = only(audit_step(compute))

    assert (use.read_bytes, use.written_bytes) == (read_bytes, written_bytes)


def test_a_fused_optimizer_reads_and_writes_its_four_tensors() -> None:
    """Parameter, both moments: read and written; gradient: read.  Lists are flattened."""
    parameter = nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.AdamW([parameter], fused=True)
    parameter.grad = torch.ones(1000)
    optimizer.step()

    audit = audit_step(optimizer.step)

    (use,) = [use for use in audit.operators if "fused" in use.name]
    assert use.part == "optimizer"
    assert use.read_bytes == pytest.approx(4 * 4000, abs=16)
    assert use.written_bytes == pytest.approx(3 * 4000, abs=4000 + 16)
