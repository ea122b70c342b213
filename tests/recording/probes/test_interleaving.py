"""Waiting for one's turn is in no step, and the steps after it are told apart."""

from collections.abc import Callable

import pytest
from support.live import MS, Heard, Timeline, assert_tiles

from trainperf.accelerators import Host
from trainperf.core.interleaving import Baton, Participant
from trainperf.core.interleaving.wire import Turn, TurnTime
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import RunInfo
from trainperf.recording.probes import interleaving
from trainperf.recording.probes.interleaving import TurnsProbe, turns_probe
from trainperf.testing import SimulatedDevice


AWAY_MS = 500.0


class Waits(Baton):
    """A baton that comes back after half a second."""

    def __init__(self, line: Timeline, *, steps: int, unlike: int) -> None:
        super().__init__(Participant(address="", side=0))
        self._timeline = line
        self._turn = Turn(steps=steps, unlike=unlike)
        self.left = self.closed = False
        self.before_waiting: Callable[[], object] = list
        self.times: list[TurnTime] = []

    def join(self, ahead: int, rank: int = 0, world_size: int = 1) -> Turn:
        """At the beginning too."""
        return self.pass_on()

    def pass_on(self, times: TurnTime | None = None) -> Turn:
        """Half a second later."""
        if times is not None:
            self.times.append(times)
        self.before_waiting()
        self._timeline.wait(AWAY_MS)
        return self._turn

    def leave(self) -> None:
        """Noted."""
        self.left = True

    def close(self) -> None:
        """Noted."""
        self.closed = True


def attached(baton: Waits, synchronize: Callable[[], object] | None = None) -> TurnsProbe:
    """The probe of a fit on the timeline that the baton waits on."""
    probe = TurnsProbe(baton, 0, synchronize)
    probe.attach(baton._timeline.recorder)
    baton._timeline.recorder.on_close = probe.close
    return probe


def ran(steps: int, *, turn: int, unlike: int = 1) -> tuple[Timeline, TurnsProbe]:
    """Steps of 2 ms in turns."""
    line = Timeline()
    probe = attached(Waits(line, steps=turn, unlike=unlike))
    for _ in range(steps):
        line.step(2.0)
    line.end()
    return line, probe


def test_waiting_is_a_gap_and_in_no_step() -> None:
    """Six steps in turns of three: half a second before the first, the fourth and at the end."""
    line, _ = ran(6, turn=3)

    assert_tiles(line)
    assert [sum(step.host_ns) / MS for step in line.steps] == [2.0] * 6
    away = [gap for gap in line.gaps_ms() if gap[0] == Gap.OTHERS_TURN.label]
    assert [(length, after) for _, _, length, after in away] == [
        (AWAY_MS, -1),
        (AWAY_MS, 2),
        (AWAY_MS, 5),
    ]


@pytest.mark.parametrize(("unlike", "left_out"), [(2, [0, 1, 4, 5]), (1, [])])
def test_the_first_steps_of_a_turn_are_tagged(unlike: int, left_out: list[int]) -> None:
    """No clock counts what was made ahead.  A turn's first is left out of the steady steps only."""
    line, _ = ran(8, turn=4, unlike=unlike)

    tagged = [step.index for step in line.steps if step.tags & Tag.OUT_OF_TURN]
    assert tagged == left_out
    assert [step.index for step in line.steps if step.tags & Tag.TURN_BOUNDARY] == [0, 4]


def validated(steps: int, *, every: int, at: int) -> "Waits":
    """Turns of four steps of 2 ms, with 8 ms of validation after some."""
    line = Timeline()
    baton = Waits(line, steps=4, unlike=1)
    attached(baton)
    for number in range(steps):
        line.step(2.0)
        if number % every == at:
            line.recorder.enter_gap(Gap.VALIDATION)
            line.wait(8.0)
            line.recorder.leave_gap()
    line.end()
    return baton


def test_a_turn_tells_how_long_its_steps_took_with_the_gaps_between() -> None:
    """Four steps of 2 ms and 8 ms of validation: 2 ms steady, 4 ms in all."""
    first = validated(8, every=4, at=1).times[0]
    assert (first.steady_ns / MS, first.whole_ns / MS) == (2.0, 4.0)


def test_a_turn_tells_after_how_many_steps_something_comes_back() -> None:
    """Validation after the third step and the eighth: every five."""
    baton = validated(12, every=5, at=2)

    assert [turn.period for turn in baton.times] == [0, 0, 5]


def test_what_is_queued_on_the_device_is_part_of_the_turn() -> None:
    """The queue is empty before the other one trains."""
    timeline = Timeline()
    device = SimulatedDevice(timeline.clock)
    baton = Waits(timeline, steps=1, unlike=1)
    attached(baton, device.synchronize)
    left: list[float] = []
    baton.before_waiting = lambda: left.append(device.idle_at_ns() - timeline.clock.now_ns)
    for _ in range(3):
        timeline.step(1.0)
        device.work(30.0)
    timeline.end()

    assert left == [0, 0, 0]
    assert_tiles(timeline)
    assert sum(sum(step.host_ns) for step in timeline.steps) / MS >= 2 * 30.0


def test_a_turn_does_not_end_inside_a_trace() -> None:
    """Waiting would look like idle time there: the turn ends with the first step after it."""
    line = Timeline()
    attached(Waits(line, steps=2, unlike=1))
    for number in range(6):
        line.recorder.listener = Heard() if number in {1, 2} else None
        line.step(1.0)
    line.end()

    away = [after for gap, _, _, after in line.gaps_ms() if gap == Gap.OTHERS_TURN.label]
    assert away == [-1, 2, 4]


def test_a_fit_that_failed_waits_for_nobody() -> None:
    """Why it failed is told at once; the connection is closed, which the other one hears."""
    _, probe = ran(3, turn=5)

    probe.ended("OutOfMemoryError")
    probe.detach()

    assert not probe._baton.left
    assert probe._baton.closed


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process is to take turns."""
    for name, value in Participant(address="", side=0).variable().items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize(
    ("loader", "micro_batches", "ahead"),
    [
        ({"num_workers": 0, "prefetch_factor": None}, 1, 0),
        ({"num_workers": 2, "prefetch_factor": 2}, 1, 4),
        ({"num_workers": 3, "prefetch_factor": 3}, 2, 5),
        ({"loader": "list"}, 1, 0),
    ],
)
def test_steps_ahead_are_what_the_workers_may_have_ready(
    launched: pytest.MonkeyPatch,
    loader: dict[str, int | str | None],
    micro_batches: int,
    ahead: int,
) -> None:
    """Batches of all workers, in steps."""
    launched.setattr(interleaving, "can_be_stopped", lambda: False)
    (probe,) = turns_probe(Host(), RunInfo(config=dict(loader)), micro_batches)

    assert probe._ahead == ahead


@pytest.mark.usefixtures("launched")
def test_a_period_of_batches_is_told_in_steps() -> None:
    """Validation every 500 batches, two of them a step."""
    (probe,) = turns_probe(Host(), RunInfo(), 2, 500)

    assert probe.period == 250


def test_nobody_waits_who_was_not_launched_to(launched: pytest.MonkeyPatch) -> None:
    """Nor do ranks on several machines: the referee is on one of them."""
    launched.setenv("LOCAL_WORLD_SIZE", "2")
    assert turns_probe(Host(), RunInfo(world_size=4)) == []
    assert len(turns_probe(Host(), RunInfo(world_size=2))) == 1
    launched.undo()
    assert turns_probe(Host(), RunInfo()) == []


def test_at_the_end_the_other_fit_is_waited_for() -> None:
    """Outside of the fit's own time."""
    line, probe = ran(3, turn=5)

    probe.ended("finished")

    assert probe._baton.left
    assert not probe._baton.closed
    assert line.fit_ns / MS == 3 * 2.0 + AWAY_MS
    assert probe.notes()["turns"].startswith("took turns with another run")
