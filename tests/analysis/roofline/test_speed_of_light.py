"""The floor of an audited run on its chip: never above what a steady step takes."""

import msgspec
import pytest
from support.light import CHIP, COMPUTE, make_audit

from trainperf.analysis.diagnosis.of_run import light_of
from trainperf.core.artifacts.audit import MeasuredChip
from trainperf.core.artifacts.folder import Documents
from trainperf.core.machine.chips import Chip, chip_of


def documents(*, device: str = "planted", chip: Chip | None = CHIP) -> Documents:
    """Of a run with an audit of one product: a millisecond of arithmetic, a tenth of memory."""
    audit = msgspec.structs.replace(make_audit(COMPUTE), device_name=device)
    return Documents(audit=audit, chip=None if chip is None else MeasuredChip(chip=chip))


H100 = documents(device="NVIDIA H100 80GB HBM3", chip=None)


@pytest.mark.parametrize(
    ("known", "step_s", "floor_s"),
    [
        *((documents(), step_s, 1e-3) for step_s in (None, 1e-3, 5e-3)),
        # Steps of half the floor: others had the machine when its chip was measured.
        (documents(), 0.5e-3, 0.5e-3),
        # Of a data sheet a step below its floor is a fault of ours, and must be seen.
        (H100, 1e-9, 1e9 / chip_of("NVIDIA H100 80GB HBM3").flops_per_s["fp32"]),
        (documents(chip=None), None, None),
        (Documents(), None, None),
    ],
)
def test_a_measured_chip_is_as_fast_as_its_steps(
    known: Documents, step_s: float | None, floor_s: float | None
) -> None:
    """Without a chip, or an audit, there is no floor."""
    light = light_of(known, step_s)

    assert (light and light.step.floor_s) == (floor_s and pytest.approx(floor_s))
