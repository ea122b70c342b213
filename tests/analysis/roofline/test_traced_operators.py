"""Operators of a trace beside those of an audit: joined by name."""

import pytest
from support.audits import capture_of

from trainperf.analysis.roofline.speed_of_light import family, traced_operators


def test_operators_of_one_family_are_one() -> None:
    """A cast and a clone are copies to the device."""
    found = traced_operators(
        [capture_of({"addmm": (3, 4.0), "_to_copy": (1, 1.0), "clone": (1, 2.0)})]
    )

    assert found == pytest.approx({"addmm": 4e-3, "copy_": 3e-3})


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
    """As of a fit without a capture."""
    assert traced_operators([]) == {}
