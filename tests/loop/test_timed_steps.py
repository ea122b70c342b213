"""What a plain loop's monitor costs, timed in the loop that it stands in."""

import time
from pathlib import Path

import pytest
from support.loops import quiet

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S, STEP_MEAN_S
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.base import Probe
from trainperf.recording.step_cost import STEPS


class Napping(Probe):
    """Takes two milliseconds of every step."""

    name = "nap"

    def micro_batch(self, batch: object, loss: object) -> None:
        """Nap."""
        time.sleep(0.002)


def run_steps(monitor: LoopMonitor, number: int) -> list[bool]:
    """Whether each step's phase was timed."""
    timed = []
    for _ in monitor.batches(range(number)):
        forward = monitor.phase("forward")
        timed.append(monitor._fit.cost is not None)
        with forward:
            pass
        monitor.end_step()
    return timed


def test_nothing_is_timed_any_more_once_it_is_clear_what_it_costs(tmp_path: Path) -> None:
    """The first step has none before it whose switches are known."""
    with quiet(tmp_path, machine=False) as monitor:
        assert run_steps(monitor, STEPS + 10) == [True] * (STEPS + 1) + [False] * 9


def test_what_the_monitor_takes_in_its_place_is_what_it_is_said_to_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two milliseconds planted in the end of a step, and two in a probe, which counts them itself.

    No less is counted, and nothing twice.
    """
    with quiet(tmp_path, machine=False, probes=[Napping()]) as monitor:
        recorder = monitor.monitor.recorder
        enter = recorder.enter

        def slow(phase: int) -> None:
            time.sleep(0.002)
            enter(phase)

        monkeypatch.setattr(recorder, "enter", slow)
        run_steps(monitor, 200)

    summary = summarize(Run.open(monitor.run or tmp_path))
    cost_s, step_s = summary.value(OVERHEAD_S), summary.value(STEP_MEAN_S)
    assert 0.004 <= cost_s < 1.2 * step_s


def test_the_end_of_a_step_of_the_users_own_is_not_ours(tmp_path: Path) -> None:
    """A subclass may do more in it."""

    class Own(LoopMonitor):
        def end_step(self, loss: object = None) -> None:
            time.sleep(0.002)
            super().end_step(loss)

    with Own(tmp_path, report=False, machine=False) as monitor:
        run_steps(monitor, STEPS + 2)

        assert monitor.monitor.switch_ns < 0.001e9
