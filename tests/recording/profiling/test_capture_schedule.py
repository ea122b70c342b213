"""When a capture is due."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.profiler import schedule

from trainperf.core.errors import ConfigError
from trainperf.recording.profiling.capture_requests import CaptureRequest


def planned(steps: int, **values: int) -> list[int]:
    """Steps at which a warm-up begins."""
    plan = schedule(**values)
    return [step for step in range(steps) if plan.begins(step)]


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
    ("options", "message"),
    [
        ({"skip_first": -1}, "skip_first=-1: must be a whole number, at least 0; try skip_first=0"),
        ({"warmup": 0}, "warmup=0: must be a whole number, at least 1; try warmup=1"),
        ({"active": 2.0}, "active=2.0: must be a whole number, at least 1; try active=1"),
        ({"wait": True}, "wait=True: must be a whole number, at least 0; try wait=0"),
        ({"max_traces": 0}, "max_traces=0: must be a whole number, at least 1; try max_traces=1"),
        ({"ranks": ()}, "ranks=(): must name at least one rank; try ranks=(0,)"),
        ({"ranks": (0, -1)}, "ranks=-1: must be a whole number, at least 0; try ranks=0"),
    ],
)
def test_a_refused_value_is_named_with_rule_and_remedy(
    options: dict[str, object], message: str
) -> None:
    """At construction, where the user made the choice."""
    with pytest.raises(ConfigError) as refused:
        schedule(**options)

    assert str(refused.value) == message


def test_each_touch_of_the_file_is_answered_once_by_every_rank(tmp_path: Path) -> None:
    """At the next look; the file stays where it is."""
    ranks = [CaptureRequest(tmp_path) for _ in range(2)]
    answers = []
    for second in range(5):
        if second in (1, 3):
            (tmp_path / "capture").touch()
            os.utime(tmp_path / "capture", (0, second))
        answers += [second for rank in ranks if rank.is_new()]

    assert answers == [1, 1, 3, 3]


def test_a_request_of_an_earlier_attempt_is_not_answered_again(tmp_path: Path) -> None:
    """A restarted job finds the file of its predecessor in the run directory."""
    (tmp_path / "capture").touch()

    assert not CaptureRequest(tmp_path).is_new()
