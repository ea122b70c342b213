"""The floor of an audited run on its chip: never above what a steady step takes."""

import msgspec
import pytest
from support.light import CHIP, COMPUTE, make_audit
from trainperf.analysis.rules.base import light_of

from trainperf.core.artifacts.audit import MeasuredChip
from trainperf.core.artifacts.folder import Documents
from trainperf.core.machine.chips import Chip


def documents(*, device: str = "planted", chip: Chip | None = CHIP) -> Documents:
    """Of a run with an audit of one product: a millisecond of arithmetic, a tenth of memory."""
    audit = msgspec.structs.replace(make_audit(COMPUTE), device_name=device)
    return Documents(audit=audit, chip=None if chip is None else MeasuredChip(chip=chip))


def floor_s(known: Documents, step_s: float | None) -> float:
    """Speed of light of the step."""
    light = light_of(known, step_s)
    assert light is not None
    return light.step.floor_s


@pytest.mark.parametrize("step_s", [None, 1e-3, 5e-3])
def test_the_floor_is_that_of_the_measured_chip(step_s: float | None) -> None:
    """As long as no step is faster."""
    assert floor_s(documents(), step_s) == pytest.approx(1e-3)


def test_a_chip_that_was_measured_too_slow_is_made_as_fast_as_its_steps() -> None:
    """Steps of half the floor: others had the machine when it was probed."""
    assert floor_s(documents(), 0.5e-3) == pytest.approx(0.5e-3)


def test_a_data_sheet_is_not_corrected() -> None:
    """A step below its floor is then a fault of ours, and must be seen."""
    known = documents(device="NVIDIA H100 80GB HBM3", chip=None)

    assert floor_s(known, 1e-9) > 1e-9


def test_without_a_chip_there_is_no_floor() -> None:
    """Nor without an audit."""
    assert light_of(documents(chip=None)) is None
    assert light_of(Documents()) is None
