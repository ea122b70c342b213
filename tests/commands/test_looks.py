"""A pair of trainings that is ended early has whole periods of what comes back, or says so."""

from dataclasses import replace as with_options
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.runs import RankSpec, make_run_dir, make_steps

from trainperf.commands._comparison import ComparisonOptions
from trainperf.commands._looks import Periods, Proof, is_decided
from trainperf.commands._paired_runs import PairOfRuns, ProofOptions
from trainperf.comparison.compare import Method
from trainperf.core.interleaving.wire import TurnTime
from trainperf.core.stats.sequential import Looks


TURN = TurnTime(steps=10, steady=9, steady_ns=10e6, whole_ns=10e6)


SHOWN = ComparisonOptions(form="text", method=Method(looks=Looks(most=10)))
WANTED = ProofOptions(pairs=10, steps=10, out=Path("unused"))


def ended_after(turn: TurnTime, after: TurnTime, shown: ComparisonOptions) -> tuple[int, bool]:
    """Turns of either side with which a pair ends, and whether it has whole periods.

    No turn takes longer than another of its side, so the pair is settled early on.
    """
    proof = Proof(wanted=WANTED, shown=shown, decides=is_decided)
    number = next(
        number for number in range(1, 1000) if proof.enough(1, ([turn] * number, [after] * number))
    )
    return number, proof.periods.contained


CLEAR = {"steady_ns": 7e6, "whole_ns": 7e6}
"""30 % less per step."""


@pytest.mark.parametrize(
    ("period", "faster", "shown", "turns", "whole"),
    [
        (0, {}, SHOWN, range(100), False),
        # The validation after the 1000th step is in the turn that begins with the 1001st.
        (500, {}, SHOWN, range(101, 102), True),
        # The answer is over the first steps then.
        (360_000, {}, SHOWN, range(100), False),
        (500, CLEAR, SHOWN, range(20), False),
        # The gate passes the fit too, and waits.
        (500, CLEAR, with_options(SHOWN, most_slower=0.05), range(101, 102), True),
        # As long again as it took to be clear: some ten turns, of which 80 steps need nine.
        (80, CLEAR, SHOWN, range(17, 18), True),
    ],
    ids=[
        "nothing comes back",
        "twice what comes back every 500 steps",
        "an epoch of an hour is not waited for",
        "a clear change does not wait for epochs of 500 steps",
        "a gate does",
        "a clear change waits for periods that are near",
    ],
)
def test_a_pair_waits_for_whole_periods_as_long_as_that_is_worth_it(
    period: int,
    faster: dict[str, float],
    shown: ComparisonOptions,
    turns: range,
    *,
    whole: bool,
) -> None:
    """And says whether it has them."""
    turn = replace(TURN, period=period)
    number, contained = ended_after(turn, replace(turn, **faster), shown)

    assert (number in turns, contained) == (True, whole)


def test_a_pair_ends_with_a_period() -> None:
    """Only in the turn in which one has just ended: validation has its share of the steps."""
    at = [
        Periods(steps=steps, turns_s=0.01 * steps, period=70, turn=10)
        for steps in range(10, 400, 10)
    ]

    assert [state.steps for state in at if state.may_end(120.0)] == [150, 220, 290, 360]


@pytest.mark.parametrize(
    ("steps", "reason"), [(6, "no steady state"), (18, "too few steady steps for an interval")]
)
def test_where_trainings_were_too_short_longer_ones_are_advised(
    steps: int, reason: str, tmp_path: Path
) -> None:
    """However it is that they were."""
    spec = RankSpec(steps=make_steps(steps, forward=10))
    runs = [make_run_dir(tmp_path / side / "trainperf", [spec]) for side in ("before", "after")]
    proof = Proof(wanted=WANTED, shown=SHOWN, decides=is_decided)

    proof.add(PairOfRuns(runs=(runs[0], runs[1]), ended=False))

    assert proof.comparison.reason.startswith(reason)
    assert f"comparable, trainings of more than {steps} steps may" in proof.ending()
