"""The same planted truth comes back from the loops of other frameworks.

Of the doors of the package `tests/conformance` shows it, to the nanosecond.
"""

from pathlib import Path
from statistics import median

import pytest
from support.loops import read
from support.planted_loops import EVERY_OVERFLOW, LOOPS, NAPS_MS, STEPS, Planted, trained
from support.threads import one_thread

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


__all__ = ["one_thread"]


def planted_s(durations: list[float], between_s: float) -> float:
    """How much longer the long ones are than the short: what runs after either costs the same."""
    long = [each for each in durations if each > between_s]
    short = [each for each in durations if each <= between_s]
    return median(long) - median(short)


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_planted_comes_back(name: str, tmp_path: Path) -> None:
    """Times in their phases; tokens and overflows to the number."""
    planted = Planted()
    path = trained(name, tmp_path, planted)

    run, summary = read(path / "steps-rank0.jsonl"), summarize(Run.open(path))
    assert len(run.steps) == STEPS
    assert run.totals.faults == {}
    for phase, (short_ms, long_ms) in NAPS_MS.items():
        between_s = (short_ms + long_ms) / 2e3
        slept = planted_s(planted.sleeper.naps[phase], between_s)
        # Without the first, which may wait for two batches, and the last, which may for none.
        measured = planted_s(run.phase_s(phase)[1:-1], between_s)
        assert measured == pytest.approx(slept), phase
    assert summary.readings["padding_fraction"].value == pytest.approx(0.375)
    if not planted.scales:
        return
    overflows = [step.facts["overflows"] for step in run.steps]
    assert overflows == [int(n % EVERY_OVERFLOW == 0) for n in range(1, STEPS + 1)]
