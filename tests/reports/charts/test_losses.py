"""A loss over the work done, in few points."""

import numpy as np
import pytest

from trainperf.comparison.loss_parity import LossCurve
from trainperf.reports.charts.losses import line


def test_groups_are_of_equal_work_and_hold_means() -> None:
    """A loss that falls in proportion to the samples is a straight line, however many steps."""
    samples = np.arange(1.0, 10_001.0)
    points = line(LossCurve(loss=4 - samples / 10_000, work={"samples": samples}), "samples")

    assert len(points.x) == 200
    assert points.y == pytest.approx(4 - points.x / 10_000)


def test_steps_without_a_loss_leave_no_point() -> None:
    """A gap is not drawn as a zero."""
    samples = np.arange(1.0, 101.0)
    loss = np.where(samples > 50, np.nan, 2.0)

    points = line(LossCurve(loss=loss, work={"samples": samples}), "samples")

    assert set(points.y) == {2.0}
    assert max(points.x) <= 50
    assert line(LossCurve(loss=loss, work={}), "samples") is None
