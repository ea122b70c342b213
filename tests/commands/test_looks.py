"""A pair of trainings that is ended early has whole periods of what comes back, or says so."""

from msgspec.structs import replace

from trainperf.commands._comparison import ComparisonOptions
from trainperf.commands._looks import Periods, _Proof
from trainperf.core.interleaving.wire import TurnTime
from trainperf.core.stats.sequential import Looks


TURN = TurnTime(steps=10, steady=9, steady_ns=10e6, whole_ns=10e6)


def ended_after(turn: TurnTime) -> tuple[int, bool]:
    """Turns of either side with which a pair ends, and whether it has whole periods.

    No turn takes longer than another, so the pair can show no more from early on.
    """
    proof = _Proof(shown=ComparisonOptions(form="text", looks=Looks(most=10)))
    number = next(
        number for number in range(1, 1000) if proof.enough(1, ([turn] * number, [turn] * number))
    )
    return number, proof.whole_periods


def test_a_pair_has_what_comes_back_every_500_steps_twice() -> None:
    """The validation after the 1000th step is in the turn that begins with the 1001st."""
    unknown, whole = ended_after(TURN)

    assert (unknown < 100, whole) == (True, False)
    assert ended_after(replace(TURN, period=500)) == (101, True)


def test_a_pair_ends_with_a_period() -> None:
    """Only in the turn in which one has just ended: validation has its share of the steps."""
    at = [Periods(steps=steps, step_s=0.01, period=70, turn=10) for steps in range(10, 400, 10)]

    assert [state.steps for state in at if state.contained and state.may_end] == [
        150,
        220,
        290,
        360,
    ]


def test_an_epoch_of_an_hour_is_not_waited_for() -> None:
    """The answer is over the first steps then."""
    number, whole = ended_after(replace(TURN, period=360_000))

    assert (number < 100, whole) == (True, False)
