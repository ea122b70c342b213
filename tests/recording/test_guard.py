"""When trainperf itself fails: one part is switched off, once, and training goes on."""

import logging
from unittest.mock import Mock

import pytest

from trainperf.recording.guard import Guard


class Part:
    """Fails on its *fails_at*-th call."""

    def __init__(self, fails_at: int = 0) -> None:
        self.calls = 0
        self._fails_at = fails_at

    def __call__(self, *args: object) -> None:
        """Count, and perhaps fail."""
        self.calls += 1
        if self.calls == self._fails_at:
            raise ValueError(f"call {self.calls}")


def test_a_wrapped_function_returns_what_it_returns() -> None:
    """Arguments and results pass through."""

    def quotient(a: float, b: float) -> float:
        return a / b

    assert Guard().wrap("part", quotient)(6, b=3) == 2


@pytest.mark.parametrize("way", ["wrap", "hook"])
def test_a_part_that_failed_is_not_called_again(way: str) -> None:
    """Nor what else belongs to it.  Its fault is kept with the error's class and message."""
    guard, part, other = Guard(), Part(fails_at=2), Part()
    functions = [getattr(guard, way)("part", each) for each in (part, other)]
    dropped = {"model": None} if way == "hook" else {}  # a framework's names
    for _ in range(5):
        for function in functions:
            function(1, **dropped)

    assert (part.calls, other.calls) == (2, 1)
    assert guard.faults == {"part": "ValueError: call 2"}


def test_a_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what it means for the training, and at DEBUG the whole story."""
    guard = Guard()
    with caplog.at_level(logging.DEBUG, logger="trainperf"):
        for _ in range(3):
            guard.fault("tokens", ValueError("no mask"))

    (record,) = caplog.records
    assert (record.levelname, record.exc_info is not None) == ("WARNING", True)
    assert record.getMessage() == (
        "trainperf: tokens is switched off for this run, an error of its own (training is not "
        "affected): ValueError: no mask"
    )


@pytest.mark.parametrize("arguments", [1, 2])
def test_a_fault_in_one_part_silences_no_other(arguments: int) -> None:
    """Each hook of a chain is switched off by its own fault only."""
    guard, good, bad, last = Guard(), Part(), Part(fails_at=1), Part()
    hooks = [("good", good), ("bad", bad), ("last", last)]
    chain = guard.each(hooks)
    for _ in range(3):
        chain(*range(arguments))

    assert (good.calls, bad.calls, last.calls) == (3, 1, 3)
    assert set(guard.faults) == {"bad"}


def test_the_consequences_of_a_fault_come_once_and_in_turn() -> None:
    """The relay goes silent, for instance; one that fails is a fault too, and keeps none away."""
    guard, first, second = Guard(), Part(fails_at=1), Part()
    guard.when_faulty("part", first)
    guard.when_faulty("part", second)
    guard.fault("other", ValueError())
    assert first.calls == second.calls == 0

    guard.fault("part", ValueError("first"))
    guard.fault("part", ValueError("again"))
    assert (first.calls, second.calls) == (1, 1)
    assert guard.faults["part"] == "ValueError: first"
    assert len(guard.faults) == 3


def test_a_part_may_clean_up_after_its_fault() -> None:
    """That is not what it was switched off for; a second fault is no news."""
    guard, cleaned = Guard(), Part(fails_at=2)
    guard.fault("part", ValueError("first"))
    guard.last("part", cleaned)
    guard.last("part", cleaned)

    assert cleaned.calls == 2
    assert guard.faults == {"part": "ValueError: first"}


@pytest.mark.parametrize("fails", ["enter", "leave"])
def test_a_bracket_keeps_both_of_its_faults(fails: str) -> None:
    """Whatever is inside runs, and its own result stands."""
    guard, enter, leave = Guard(), Part(int(fails == "enter")), Part(int(fails == "leave"))
    with guard.bracket("part", enter, leave):
        inside = True

    assert inside
    assert (enter.calls, leave.calls) == (1, 1)
    assert set(guard.faults) == {"part"}


def test_a_bracket_lets_the_users_error_through() -> None:
    """Only our own faults are ours to keep."""
    guard = Guard()
    with pytest.raises(ZeroDivisionError), guard.bracket("part", Part(), Part(fails_at=1)):
        _ = 1 / 0


def test_an_interrupt_is_not_a_fault() -> None:
    """Ctrl-C inside our code stops the training, as anywhere."""
    guard = Guard()
    with pytest.raises(KeyboardInterrupt):
        guard.run("part", Mock(side_effect=KeyboardInterrupt))
    assert guard.faults == {}
