"""Floors, bounds and dimensions of planted operators on a planted chip."""

import msgspec
import pytest
from support.light import COMPUTE, MEMORY, make_light, make_use

from trainperf.core.artifacts.audit import OperatorUse


LAUNCH = make_use(flops=10, memory=100)
"""Next to nothing of either."""


@pytest.mark.parametrize(
    ("one", "bound", "floor_s"),
    [(COMPUTE, "compute", 1e-3), (MEMORY, "memory", 1e-3), (LAUNCH, "launch", 1e-8)],
)
def test_an_operator_is_bound_by_what_takes_longest(
    one: OperatorUse, bound: str, floor_s: float
) -> None:
    """Its floor is arithmetic or memory: a launch can be saved."""
    (floor,) = make_light(one).operators

    assert floor.bound == bound
    assert floor.floor_s == pytest.approx(floor_s)


def test_the_speed_of_light_is_the_sum_of_the_floors() -> None:
    """For the step and for each phase; recomputation belongs to backward."""
    found = make_light(
        COMPUTE,
        MEMORY,
        make_use(flops=2 * 10**9, part="backward"),
        make_use(flops=10**9, kind="matmul", part="recompute"),
        make_use(memory=3 * 10**7, part="optimizer"),
    )

    assert found.step.floor_s == pytest.approx(8e-3)
    phases = {name: floor.floor_s for name, floor in found.phases.items()}
    assert phases == pytest.approx({"forward": 2e-3, "backward": 3e-3, "optimizer": 3e-3})


def test_fusion_saves_memory_time_but_no_arithmetic() -> None:
    """The planted chains keep a quarter of their traffic."""
    assert make_light(COMPUTE, MEMORY).step.fused_floor_s == pytest.approx(1e-3 + 0.25e-3)


def test_copies_over_the_link_and_work_beside_the_chip_are_no_part_of_it() -> None:
    """They may run at the same time; the link has a floor of its own."""
    moved = make_use(memory=10**6)
    places = ("link", "host")
    found = make_light(*(msgspec.structs.replace(moved, place=place) for place in places))

    assert found.step.floor_s == 0.0
    assert msgspec.structs.replace(found.step, measured_s=1.0).over is None
    by_bound = {floor.bound: floor.floor_s for floor in found.operators}
    assert by_bound == pytest.approx({"transfer": 1e-3, "host": 0.0})


def test_without_a_peak_for_the_precision_there_is_no_floor_from_arithmetic() -> None:
    """The precision is named."""
    found = make_light(make_use(flops=10**9, memory=10**6, kind="matmul", precision="fp64"))

    assert found.unknown_precisions == ("fp64",)
    assert found.operators[0].compute_s is None
    assert found.step.floor_s == pytest.approx(1e-4)
