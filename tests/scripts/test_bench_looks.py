"""How honest the comparison in turns is said to be: the bench on runs with a planted truth."""

import numpy as np
import pytest

from scripts.bench.compare_loops import convolution
from scripts.bench.prove_looks import Outcome, estimated, judged, recorded
from trainperf.core.stats.bootstrap import Estimate


def pairs(scatter: float) -> list[tuple[Estimate, Estimate]]:
    """Ten pairs of identical runs, of 100 steps of a millisecond, on a machine that scatters so."""
    generator = np.random.default_rng(0)
    runs = []
    for _ in range(20):
        walls = 1e6 * generator.lognormal(0.0, scatter) * generator.lognormal(0.0, 0.005, 100)
        run = estimated(walls.astype(np.int64))
        assert run is not None
        runs.append(run)
    return list(zip(runs[::2], runs[1::2], strict=True))


@pytest.mark.parametrize(
    ("scatter", "longer", "verdict"),
    [
        (0.002, 0.0, "equal"),
        (0.002, 0.05, "slower"),
        (0.03, 0.0, "undecided"),
        (0.03, 0.02, "undecided"),
    ],
)
def test_a_quiet_machine_and_a_loud_one_are_told_apart(
    scatter: float, longer: float, verdict: str
) -> None:
    """Of 0.2 % from run to run 5 % is found, of 3 % not 2 %; neither claims what is not there."""
    outcome: Outcome = judged("a loop", pairs(scatter), longer)

    assert outcome.verdict == verdict
    assert outcome.low <= 1 + longer <= outcome.high


def test_a_step_of_three_seconds_is_estimated_as_it_was_recorded() -> None:
    """A machine that was busy for so long: more nanoseconds than 32 bits hold."""
    run = estimated(np.full(100, 3_000_000_000, np.int64))

    assert run is not None
    assert np.exp(run.log) == pytest.approx(3.0, rel=0.01)


@pytest.mark.slow
def test_a_pair_that_takes_turns_is_recorded() -> None:
    """Real loops in processes of their own; `None` only of one with too few steady steps."""
    runs = recorded(convolution, pairs=1)

    assert runs is None or len(runs) == 1
