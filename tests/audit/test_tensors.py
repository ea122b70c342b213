"""Tensors and operators of unusual kinds: taken apart, counted whole, or named as not counted."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.testing._internal.two_tensor import TwoTensor

from trainperf.audit import audit_step


def test_a_tensor_made_of_tensors_is_seen_by_its_parts() -> None:
    """Each of two parts is multiplied: shapes and storages of the wrapper mean nothing."""
    wrapper = TwoTensor(torch.ones(3, 4), torch.ones(3, 4))
    other = torch.ones(4, 2)

    audit = audit_step(lambda: wrapper @ other)

    assert [(use.name, use.calls) for use in audit.operators] == [("aten.mm.default", 2)]
    assert audit.model_flops == 2 * (2 * 3 * 4 * 2)


def test_an_operator_that_only_a_compiler_takes_apart_stays_whole() -> None:
    """Batch normalisation: torch has a rule for it, and runs its kernel."""
    audit = audit_step(lambda: nn.BatchNorm2d(4)(torch.ones(2, 4, 3, 3)))

    assert "aten.native_batch_norm.default" in [use.name for use in audit.operators]


def jagged() -> object:
    """Rows of different lengths: five in all, and no padding."""
    rows = [torch.ones(2, 4), torch.ones(3, 4)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged) @ torch.ones(4, 2)


def layer() -> object:
    """In inference mode torch hands over the whole layer."""
    with torch.inference_mode():
        return nn.Linear(4, 2)(torch.ones(5, 4))


@pytest.mark.parametrize("compute", [jagged, layer])
def test_a_product_counts_what_it_holds(compute: Callable[[], object]) -> None:
    """Five rows of four times two columns, and nothing that is not counted."""
    audit = audit_step(compute)

    assert audit.model_flops == 2 * 5 * 4 * 2
    assert audit.uncounted == ()


@pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="torch 2.6 knows no flex attention under a mode"
)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_an_operator_that_is_given_a_function_is_one_call() -> None:
    """Flex attention, uncompiled: torch's own formula counts it."""
    query = torch.ones(1, 2, 128, 16)

    def step() -> None:
        flex_attention(query, query, query)

    with torch.no_grad():
        step_audit = audit_step(step)

    (use,) = [use for use in step_audit.operators if use.kind == "matmul"]
    assert use.name == "flex_attention"
    assert use.flops == 4 * 2 * 128 * 128 * 16


def test_a_sparse_product_is_named_as_not_counted() -> None:
    """The formulas are those of dense tensors."""
    sparse, other = torch.eye(4).to_sparse_coo(), torch.ones(4, 2)

    audit = audit_step(lambda: sparse @ other)

    assert audit.model_flops == 0
    assert audit.uncounted != ()


def test_a_double_precision_number_is_not_taken_for_single() -> None:
    """Each row says what it computes in."""
    one = torch.ones(4, 4, dtype=torch.float64)

    assert audit_step(lambda: one @ one).precision == "fp64"
    assert audit_step(lambda: one.float() @ one.float()).precision == "fp32"
