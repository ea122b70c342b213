"""Healthy fits that were recorded, with noise: no change, no drift.

`recorded_healthy.npz` is what `python -m scripts.bench.healthy --levels` wrote of real fits; half
of them had a neighbour that took the processor in bursts.
"""

from pathlib import Path

import numpy as np
import pytest

from scripts.bench.healthy import with_later_columns
from trainperf.analysis.summary import long_term
from trainperf.analysis.summary.long_term import COLUMNS, walls_s
from trainperf.analysis.summary.schema import RunChange
from trainperf.core.arrays import Column
from trainperf.core.stats.changes import LEAST_LEVELS


with np.load(Path(__file__).with_name("recorded_healthy.npz")) as recorded:
    FITS = {name: with_later_columns(recorded[name].astype(np.float64)) for name in recorded}


def told(levels: Column) -> tuple[RunChange, ...]:
    """What is said of a fit of one rank."""
    return long_term.long_term({0: levels})


def test_they_are_of_unlike_kinds_and_long_enough_to_be_judged() -> None:
    """Fourteen."""
    assert [len(matrix) >= LEAST_LEVELS for matrix in FITS.values()] == [True] * 14


@pytest.mark.parametrize("name", FITS)
def test_nothing_is_said_of_a_healthy_fit(name: str) -> None:
    """Neither a new level nor a drift."""
    assert told(FITS[name]) == ()


def test_without_the_floor_the_machine_is_all_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last seconds of one fit others took the processor, and the finding says so."""
    monkeypatch.setattr(long_term, "LEAST_LASTS_S", 2.0)
    changes = {name: told(matrix) for name, matrix in FITS.items()}
    named = {name: change for name, change in changes.items() if change}

    assert list(named) == ["accumulation"]
    (level,) = named["accumulation"]
    assert level.from_step > 0
    assert "waited_ns" in [moved.fact for moved in level.moved]


def test_some_of_the_same_fits_with_a_drift_in_them_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward grows to four times the step: they are not silent whatever happens."""
    monkeypatch.setattr(long_term, "LEAST_LASTS_S", 2.0)
    phases = []
    for matrix in FITS.values():
        levels = matrix.copy()
        more_s = 3 * float(np.median(walls_s(levels))) * np.linspace(0, 1, len(levels))
        levels[:, COLUMNS.index("forward")] += more_s * 1e9
        phases += [each.phase for each in told(levels) if not each.from_step]

    assert phases == ["forward"] * 8
