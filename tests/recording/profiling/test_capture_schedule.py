"""When a capture is due."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.profiler import schedule

from trainperf.core.errors import ConfigError
from trainperf.recording.profiling.capture_requests import LOOK_EVERY_NS, CaptureRequest


STEP_NS = LOOK_EVERY_NS // 10


def planned(steps: int, **values: int) -> list[int]:
    """Steps at which a warm-up begins."""
    plan = schedule(**values)
    return [step for step in range(steps) if plan.begins(step)]


def test_a_cycle_waits_before_its_warm_up() -> None:
    """The warm-up of the only cycle begins after skip_first and wait."""
    assert planned(100, skip_first=7, wait=5) == [12]


def test_cycles_follow_each_other_without_a_pause() -> None:
    """Each is wait + warmup + active long."""
    assert planned(100, wait=5, warmup=2, active=3, repeat=3) == [5, 15, 25]


def test_repeat_zero_goes_on_for_ever() -> None:
    """As in torch."""
    assert planned(45, wait=0, warmup=4, active=6, repeat=0) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("repeat", [0, 1, 3])
@pytest.mark.parametrize("wait", [0, 4])
@pytest.mark.parametrize("skip_first", [0, 3])
def test_the_same_steps_are_traced_as_by_torch(skip_first: int, wait: int, repeat: int) -> None:
    """Somebody who knows `torch.profiler.schedule` knows this one."""
    theirs: Callable[[int], object] = torch.profiler.schedule(
        skip_first=skip_first, wait=wait, warmup=2, active=3, repeat=repeat
    )
    warmup = torch.profiler.ProfilerAction.WARMUP
    begins = [n for n in range(60) if theirs(n) is warmup and (n == 0 or theirs(n - 1) != warmup)]

    assert planned(60, skip_first=skip_first, wait=wait, repeat=repeat) == begins


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("skip_first", -1, 0),
        ("wait", -2, 0),
        ("warmup", 0, 1),
        ("active", 0, 1),
        ("repeat", -1, 0),
        ("active", 2.0, 1),
        ("wait", True, 0),
    ],
)
def test_a_refused_value_is_named_with_rule_and_remedy(name: str, value: int, least: int) -> None:
    """At construction, where the user made the choice."""
    with pytest.raises(ConfigError) as refused:
        schedule(**{name: value})

    rule = f"must be a whole number, at least {least}; try {name}={least}"
    assert str(refused.value) == f"{name}={value!r}: {rule}"


def test_a_touched_file_is_taken_away_and_answered_once(tmp_path: Path) -> None:
    """The capture begins with the very next step, and the next look finds nothing."""
    request = CaptureRequest(tmp_path, rank=0, ranks=(0,))
    (tmp_path / "capture").touch()

    first = request.due(0, step=17, step_ns=STEP_NS)
    second = request.due(2 * LOOK_EVERY_NS, step=37, step_ns=STEP_NS)

    assert (first, second) == (True, False)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_looked_for_at_most_once_a_second(tmp_path: Path) -> None:
    """A request within the second after a look is seen when the second is over."""
    request = CaptureRequest(tmp_path, rank=0, ranks=(0,))
    request.due(0, step=1, step_ns=STEP_NS)
    (tmp_path / "capture").touch()

    due = [request.due(n * STEP_NS, step=1 + n, step_ns=STEP_NS) for n in range(1, 12)]

    assert due == [False] * 9 + [True, False]


def test_several_ranks_agree_on_a_step_none_of_them_has_passed(tmp_path: Path) -> None:
    """Whichever looks last, a second later, still has the agreed step before it."""
    leader, other = (CaptureRequest(tmp_path, rank=rank, ranks=(1, 3)) for rank in (1, 3))
    other.due(LOOK_EVERY_NS // 2, step=5, step_ns=STEP_NS)
    (tmp_path / "capture").touch()

    early = [
        leader.due(LOOK_EVERY_NS // 2 + STEP_NS, step=6, step_ns=STEP_NS),
        other.due(LOOK_EVERY_NS // 2 + LOOK_EVERY_NS, step=15, step_ns=STEP_NS),
    ]

    assert early == [False, False]
    assert leader.at == other.at == 6 + 25
    for request in (leader, other):
        due = [request.due(2 * LOOK_EVERY_NS, step=n, step_ns=STEP_NS) for n in (30, 31, 32)]
        assert due == [False, True, False]


def test_a_follower_answers_a_second_request_but_none_twice(tmp_path: Path) -> None:
    """Requests are told apart even where they lead to neighbouring steps."""
    leader, other = (CaptureRequest(tmp_path, rank=rank, ranks=(0, 1)) for rank in (0, 1))
    due = []
    for second in range(8):
        if second in {0, 4}:
            (tmp_path / "capture").touch()
        leader.due(second * LOOK_EVERY_NS, step=second, step_ns=LOOK_EVERY_NS)
        due.append(other.due(second * LOOK_EVERY_NS, step=second, step_ns=LOOK_EVERY_NS))

    assert [second for second in range(8) if due[second]] == [3, 7]


def test_requests_are_told_apart_even_where_they_agree_on_the_same_step(tmp_path: Path) -> None:
    """Slower steps bring the agreed one nearer."""
    leader, other = (CaptureRequest(tmp_path, rank=rank, ranks=(0, 1)) for rank in (0, 1))
    agreed = []
    for second, step_ns in ((1, LOOK_EVERY_NS), (2, 2 * LOOK_EVERY_NS)):
        (tmp_path / "capture").touch()
        leader.due(second * LOOK_EVERY_NS, step=second, step_ns=step_ns)
        other.at = math.inf
        other.due(second * LOOK_EVERY_NS, step=second, step_ns=step_ns)
        agreed.append(other.at)

    assert agreed == [4, 4]


def test_a_request_of_an_earlier_attempt_is_not_answered_again(tmp_path: Path) -> None:
    """A restarted job finds the note of its predecessor in the run directory."""
    (tmp_path / "capture").touch()
    CaptureRequest(tmp_path, rank=0, ranks=(0, 1)).due(0, step=1, step_ns=STEP_NS)

    restarted = CaptureRequest(tmp_path, rank=1, ranks=(0, 1))

    restarted.due(0, step=0, step_ns=STEP_NS)
    assert restarted.at == math.inf
