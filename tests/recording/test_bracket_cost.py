"""Brackets are timed where they stand."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

from trainperf.recording.bracket_cost import STEPS, BracketCost
from trainperf.recording.recorder import Draft
from trainperf.recording.timeline import DirectBracket
from trainperf.testing import FakeClock


def timed(cost_us: Callable[[int], float], body_us: float = 50.0) -> list[float | None]:
    """What is known after each step of a loop with three brackets, of two switches each."""
    clock, step = FakeClock(), 0
    cost = BracketCost(clock)

    def spend(*_: object) -> None:
        clock.advance(ms=cost_us(step) / 1e3)

    bracket = cost.bracket(cast("AbstractContextManager[None]", DirectBracket(spend, spend)))
    answers = []
    for step in range(STEPS + 1):
        for _ in range(3):
            with bracket:
                clock.advance(ms=body_us / 1e3)
        answers.append(cost.step_over(Draft(step, 0, 0, {}, switches=6)))
    return answers


def test_a_switch_costs_what_brackets_took_in_the_loop() -> None:
    """Whatever runs inside them is the loop's."""
    assert timed(lambda _: 2.0)[-1] == 2000


def test_nothing_is_known_before_enough_steps() -> None:
    """Until then the calibrated cost holds."""
    assert timed(lambda _: 2.0)[:-1] == [None] * STEPS


def test_the_first_steps_do_not_count() -> None:
    """There the interpreter has not come to know the code."""
    assert timed(lambda step: 9.0 if step < STEPS // 2 else 2.0)[-1] == 2000
