"""A trace's times beside an audit's floors: joined by name, said only of the same calls."""

import pytest
from support.audits import CHIP, capture_of, product, use

from trainperf.analysis.roofline.roofline import Roofline, roofline
from trainperf.analysis.roofline.speed_of_light import achieved, family, traced_operators
from trainperf.core.artifacts.audit import OperatorUse, StepAudit


def light(*uses: OperatorUse) -> Roofline:
    """Their floors."""
    audit = StepAudit(
        device="cuda",
        device_name="planted",
        cache_bytes=None,
        operators=uses,
        views=0,
        audited_s=1.0,
    )
    return roofline(audit, CHIP)


PRODUCTS = product("addmm", flops=3 * 10**9, calls=3)
"""Three milliseconds at a teraflop a second."""


def test_an_operator_has_its_share_of_the_roof() -> None:
    """Three milliseconds of floor in four of the trace: a better kernel gains little."""
    (found,) = achieved(light(PRODUCTS), [capture_of({"addmm": (3, 4.0)})])

    assert (found.name, found.calls, found.measured_s) == ("addmm", 3, pytest.approx(4e-3))
    assert found.share_of_roof == pytest.approx(0.75)
    assert found.near_roof is True


def test_below_three_quarters_a_better_kernel_pays() -> None:
    """Five milliseconds for three."""
    (found,) = achieved(light(PRODUCTS), [capture_of({"addmm": (3, 5.0)})])

    assert found.near_roof is False


def test_where_the_calls_differ_nothing_is_said() -> None:
    """The trace is of other steps, or the model was compiled."""
    (found,) = achieved(light(PRODUCTS), [capture_of({"addmm": (5, 4.0)})])

    assert found.share_of_roof is None
    assert found.near_roof is None


def test_what_the_audit_calls_otherwise_is_the_same_work() -> None:
    """A cast and a clone are copies to the device."""
    copies = [use(name, memory_bytes=10**7, kind="copy") for name in ("_to_copy", "clone")]

    (found,) = achieved(light(*copies), [capture_of({"copy_": (2, 4.0)})])

    assert found.share_of_roof == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("aten.addmm.default", "addmm"),
        ("aten::addmm", "addmm"),
        ("aten.convolution.default", "convolution"),
        ("aten::cudnn_convolution", "convolution"),
        ("aten::_to_copy", "copy_"),
        ("Optimizer.step", "step"),
        ("loose", "loose"),
    ],
)
def test_names_of_trace_and_audit_meet(name: str, same: str) -> None:
    """Without namespace and overload."""
    assert family(name) == same


def test_without_a_trace_there_is_nothing() -> None:
    """And an operator of which only one of them knows is left out."""
    assert achieved(light(PRODUCTS), []) == ()
    assert traced_operators([]) == ()
    assert achieved(light(PRODUCTS), [capture_of({"mm": (3, 4.0)})]) == ()
